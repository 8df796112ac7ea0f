"""An uploaded file or a folder, opened once for all readers: compression removed, the names in an archive checked."""

import bz2
import gzip
import io
import lzma
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.untrusted.entries import (
    DAMAGED,
    Archive,
    FileEntry,
    check_names,
    normal,
    not_plain,
    refusing,
    unreadable_name,
)
from datalens_service.data.intake.untrusted.images import STRICT, PictureDecoder
from datalens_service.data.intake.untrusted.limits import Limits
from datalens_service.data.intake.untrusted.tar import open_tar, starts_like_tar
from datalens_service.data.intake.untrusted.zip_archive import open_archive, starts_like_zip
from datalens_service.data.notices import NoticeCode, Notices


class Folder(Archive):
    """A folder in which every name was checked: its files, and those of the folders in it, by name."""

    def open(self, entry: FileEntry) -> IO[bytes]:
        path: Path = entry.place
        return path.open("rb")


def open_folder(path: Path, limits: Limits) -> Folder:
    """Walk a folder.

    Raises:
        InvalidDataset: It holds too many files, or links, or names that are no text.
    """
    entries, folders = list[FileEntry](), list[str]()
    for found in _walk(path):
        name = normal(Path(found.path).relative_to(path).as_posix())
        if found.is_dir(follow_symlinks=False):
            folders.append(name)
        elif found.is_file(follow_symlinks=False):
            size = found.stat(follow_symlinks=False).st_size
            entries.append(FileEntry(name, size, size, Path(found.path)))
        else:
            raise not_plain(name)
        if len(entries) > limits.entries:
            raise InvalidDataset(f"The folder has too many files; at most {limits.entries} are accepted.")
    check_names([entry.filename for entry in entries])
    return Folder(tuple(entries), tuple(folders), ())


def _walk(path: Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything below a folder, by name; links are not followed."""
    for found in sorted(os.scandir(path), key=lambda one: one.name):
        try:
            found.name.encode()
        except UnicodeEncodeError:
            raise unreadable_name(os.fsencode(found.name).decode(errors="replace")) from None
        yield found
        if found.is_dir(follow_symlinks=False):
            yield from _walk(Path(found.path))


GZIP: Final = b"\x1f\x8b"
_BZIP2: Final = b"BZh"
_XZ: Final = b"\xfd7zXZ\0"
_XZ_MEMORY: Final = 2**28
_CHUNK: Final = 2**20


@dataclass(frozen=True)
class Source:
    """An opened upload, as readers get it."""

    path: Path
    archive: Archive | None
    is_tar: bool
    limits: Limits
    notices: Notices = field(default_factory=Notices)
    decoder: PictureDecoder = STRICT
    was_packed: bool = False
    """True if gzip, bzip2 or xz was removed from the whole file."""

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        """Return the entries of the archive; none if it is not one."""
        return self.archive.entries if self.archive else ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders of the archive, as far as it has entries of them."""
        return self.archive.folders if self.archive else ()

    def head(self, entry: FileEntry, size: int) -> bytes:
        """Read the first `size` bytes of an entry."""
        if self.archive is None:
            raise InvalidDataset(DAMAGED)
        return self.archive.head(entry, size)

    def start(self, size: int) -> bytes:
        """Read the first `size` bytes of the file."""
        if self.path.is_dir():
            return b""
        with self.path.open("rb") as file:
            return file.read(size)


@contextmanager
def open_source(
    path: Path, limits: Limits, decoder: PictureDecoder = STRICT, encoding: str | None = None
) -> Iterator[Source]:
    """Open an upload of any kind.

    Args:
        encoding: Encoding of names in an archive that do not state theirs; None: UTF-8.

    Raises:
        InvalidDataset: It is an archive that is damaged, too large or unsafe.
    """
    if path.is_dir():
        yield Source(path, open_folder(path, limits), False, limits, decoder=decoder)
        return
    with ExitStack() as stack:
        with path.open("rb") as file:
            unpack = _unpacker(file.read(len(_XZ)))
        plain = path if unpack is None else stack.enter_context(_unpacked(path, unpack, limits))
        is_tar = starts_like_tar(plain)
        opener = open_tar if is_tar else open_archive if starts_like_zip(plain) else None
        archive = stack.enter_context(opener(plain, limits, encoding)) if opener else None
        source = Source(plain, archive, is_tar, limits, decoder=decoder, was_packed=unpack is not None)
        source.notices.add(NoticeCode.BACKSLASHES, archive.backslashed if archive else ())
        yield source


def _unpacker(start: bytes) -> Callable[[IO[bytes]], IO[bytes]] | None:
    """Return the function that decompresses a file with this start."""
    if start.startswith(GZIP):
        return lambda file: cast("IO[bytes]", gzip.GzipFile(fileobj=file))
    if start.startswith(_BZIP2):
        return lambda file: cast("IO[bytes]", bz2.BZ2File(file))
    return _open_xz if start.startswith(_XZ) else None


def _open_xz(file: IO[bytes]) -> IO[bytes]:
    # A header may ask for gigabytes of memory: the decompressor is given a limit, which LZMAFile cannot be.
    return cast("IO[bytes]", io.BufferedReader(_Xz(file)))


class _Xz(io.RawIOBase):
    """A stream of the content of an xz file, in bounded memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill some of the buffer; return 0 at the end."""
        while not self._decompressor.eof:
            packed = self._file.read(_CHUNK) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not packed:
                raise EOFError
            if content := self._decompressor.decompress(packed, len(buffer)):
                buffer[: len(content)] = content
                return len(content)
        return 0


@contextmanager
def _unpacked(path: Path, unpack: Callable[[IO[bytes]], IO[bytes]], limits: Limits) -> Iterator[Path]:
    """Yield a temporary file with the content of the compressed file."""
    most = allowance(path.stat().st_size, limits)
    with tempfile.NamedTemporaryFile(prefix="datalens-") as target:
        with refusing(DAMAGED), path.open("rb") as file:
            copy_at_most(unpack(file), target, most, limits)
        target.flush()
        yield Path(target.name)


def allowance(packed_bytes: int, limits: Limits) -> int:
    """Return the most bytes that something of `packed_bytes` may unpack to."""
    return min(limits.uncompressed_bytes, max(limits.ratio_free_bytes, limits.ratio * packed_bytes))


def copy_at_most(source: IO[bytes], target: IO[bytes], most: int, limits: Limits) -> None:
    """Copy a stream whose length nobody knows.

    Raises:
        InvalidDataset: It is longer than `most` bytes; no more than that was read.
    """
    copied = 0
    while chunk := source.read(_CHUNK):
        copied += len(chunk)
        if copied > most:
            raise InvalidDataset(
                f"The archive unpacks to more than {limits.ratio} times its size, or to more than the "
                f"{limits.uncompressed_bytes} bytes accepted. Create it with less compression."
            )
        target.write(chunk)
