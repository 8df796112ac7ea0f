"""The files of a release that somebody was handed, packed or not: all of them, or a refusal.

Programs disagree about archives and folders that are not plain: which of two entries of one name counts, what precedes
the first entry, where a link leads. The files read here are those that every other program reads as well.
"""

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Final, NamedTuple

from datalens_service.base.signatures import SignatureInvalid
from datalens_service.data.intake.untrusted.entries import is_plain
from datalens_service.data.intake.untrusted.zip_archive import starts_like_zip
from datalens_service.proof.verdict import NotChecked

_UNREADABLE: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)
_LOCAL_HEADER: Final = struct.Struct("<4s2x2H4x3L2H")
_SIGNATURE: Final = b"PK\x03\x04"
_NAMES_ARE_UTF8: Final = 0x800
_SIZE_IN_EXTRA: Final = 0xFFFFFFFF
_DIRECTORY_ENTRY_BYTES: Final = 46
_MOST_ENTRIES: Final = 0xFFFF
_END_BYTES: Final = 22
_END_BYTES_ZIP64: Final = 98
_REPACKED: Final = (
    "The archive is not as an installation packs it, so other programs may find other files in it. Unpack it, and "
    "give the folder."
)


class ReleaseFiles(NamedTuple):
    """The files of a release.

    Attributes:
        names: Names below its root, in any order.
        open: Opens a file by its name.
        check_packing: Raises `NotChecked` for an archive in which another program may find other files.
    """

    names: tuple[str, ...]
    open: Callable[[str], IO[bytes]]
    check_packing: Callable[[], None] = lambda: None


def is_release(path: Path) -> bool:
    """Tell whether a proof comes with other files: in a folder or in a zip archive."""
    return path.is_dir() or starts_like_zip(path)


@contextmanager
def release_files(path: Path) -> Iterator[ReleaseFiles]:
    """Open a folder or a zip archive.

    Raises:
        SignatureInvalid: It has links, or names that are not distinct and plain on every machine.
        NotChecked: It cannot be read.
    """
    try:
        if path.is_dir():
            yield _plain(ReleaseFiles(tuple(_walk(path)), lambda name: (path / name).open("rb")))
            return
        with zipfile.ZipFile(path) as archive:
            names = tuple(entry.filename for entry in archive.infolist() if not entry.is_dir())
            yield _plain(ReleaseFiles(names, archive.open, partial(_check_packing, path, archive)))
    except _UNREADABLE as error:
        raise NotChecked(f"A file cannot be read: {printable(str(error))}.") from error


def _plain(files: ReleaseFiles) -> ReleaseFiles:
    seen = set[str]()
    for name in files.names:
        if not is_plain(name):
            raise SignatureInvalid(f"{printable(name)} is no plain name of a file.")
        if name.casefold() in seen:
            raise SignatureInvalid(f"{name} stands twice in it, perhaps in other letter case.")
        seen.add(name.casefold())
    return files


def printable(name: str) -> str:
    """Escape a name from a stranger, which may not even be text."""
    return name.encode(errors="backslashreplace").decode()


def _walk(folder: Path) -> Iterator[str]:
    """Yield the names of all files, hidden ones too."""
    for parent, folders, names in os.walk(folder, onerror=_raise):
        for entry in (Path(parent, name) for name in (*folders, *names)):
            mode = entry.lstat().st_mode
            name = entry.relative_to(folder).as_posix()
            if stat.S_ISREG(mode):
                yield name
            elif not stat.S_ISDIR(mode):
                raise SignatureInvalid(f"{printable(name)} is neither a file nor a folder, but a link or a device.")


def _raise(error: OSError) -> None:
    raise error


def _check_packing(path: Path, archive: zipfile.ZipFile) -> None:
    """Check that every byte belongs to an entry or to the directory, and that both agree on each file.

    A program that reads from the front believes the headers of entries, others believe the directory at the end.
    """
    place = directory = 0
    with path.open("rb") as file:
        for entry in archive.infolist():
            if entry.header_offset != place or not _is_regular(entry):
                raise NotChecked(_REPACKED)
            place += _header_bytes(file, entry) + entry.compress_size
            directory += _DIRECTORY_ENTRY_BYTES + len(_stored_name(entry)) + len(entry.extra)
    large = len(archive.infolist()) >= _MOST_ENTRIES or place >= _SIZE_IN_EXTRA
    if path.stat().st_size - place - directory != (_END_BYTES_ZIP64 if large else _END_BYTES):
        raise NotChecked(_REPACKED)


def _is_regular(entry: zipfile.ZipInfo) -> bool:
    return (
        entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        and entry.flag_bits in (0, _NAMES_ARE_UTF8)
        and stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG)
        and entry.filename == entry.orig_filename
        and not entry.is_dir()
        and not entry.comment
        and (not entry.extra or entry.extra[:4] == struct.pack("<2H", 1, len(entry.extra) - 4))
    )


def _header_bytes(file: IO[bytes], entry: zipfile.ZipInfo) -> int:
    """Return the length of the header in front of a file, which has to agree with the directory.

    Raises:
        NotChecked: It does not agree.
    """
    name = _stored_name(entry)
    file.seek(entry.header_offset)
    fixed = file.read(_LOCAL_HEADER.size)
    if len(fixed) < _LOCAL_HEADER.size:
        raise NotChecked(_REPACKED)
    signature, flags, method, crc, packed, unpacked, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(fixed)
    rest = file.read(name_bytes + extra_bytes)
    sizes = struct.pack("<2H2Q", 1, 16, entry.file_size, entry.compress_size)
    stated = (signature, flags, method, crc, rest[:name_bytes])
    if (
        stated != (_SIGNATURE, entry.flag_bits, entry.compress_type, entry.CRC, name)
        or packed not in (entry.compress_size, _SIZE_IN_EXTRA)
        or unpacked not in (entry.file_size, _SIZE_IN_EXTRA)
        or rest[name_bytes:] not in (b"", sizes)
        or (_SIZE_IN_EXTRA in (packed, unpacked) and rest[name_bytes:] != sizes)
    ):
        raise NotChecked(_REPACKED)
    return len(fixed) + len(rest)


def _stored_name(entry: zipfile.ZipInfo) -> bytes:
    return entry.orig_filename.encode("utf-8" if entry.flag_bits & _NAMES_ARE_UTF8 else "ascii", errors="replace")
