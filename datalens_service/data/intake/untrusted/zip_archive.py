"""Zip archives from strangers: checked as a whole before anything in them is unpacked.

Nothing is ever extracted to disk, so names are labels and not paths; those that try to be paths are refused.
"""

import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.untrusted.entries import (
    DAMAGED,
    Archive,
    FileEntry,
    check_names,
    normal,
    not_plain,
    plain_name,
    refusing,
    unreadable_name,
)
from datalens_service.data.intake.untrusted.limits import Limits

_STARTS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_NAMES_ARE_UTF8: Final = 0x800
_UNICODE_PATH: Final = 0x7075
_END_OF_DIRECTORY: Final = b"PK\x05\x06"
_END_BYTES: Final = 22
_COMPRESSIONS: Final = {
    1: "Shrink",
    6: "Implode",
    9: "Deflate64 (Windows Explorer uses it for files above 2 GB)",
    12: "bzip2",
    14: "LZMA",
    93: "Zstandard",
    95: "xz",
    96: "JPEG of WinZip",
    98: "PPMd",
    99: "AES encryption",
}
"""Names of methods, by number (APPNOTE 4.4.5)."""
_DIRECTORY_ENTRY = b"PK\x01\x02"
_CHUNK = 2**20
_PLAIN_KINDS = (0, stat.S_IFREG, stat.S_IFDIR)


@dataclass(frozen=True)
class ZipArchive(Archive):
    """An open zip; entries are read through `zipfile`."""

    file: zipfile.ZipFile

    def open(self, entry: FileEntry) -> IO[bytes]:
        """Open the stream of an entry. Give `read` a size: without one, zipfile unpacks more than was declared."""
        return self.file.open(entry.place)


def starts_like_zip(path: Path) -> bool:
    """Tell whether the file begins with the header of a zip entry, or is a zip without any."""
    with path.open("rb") as file:
        return file.read(len(_STARTS[0])) in _STARTS


def ends_like_part_of_zip(path: Path) -> bool:
    """Tell whether the file ends with the directory of a zip that begins in another file."""
    if path.stat().st_size < _END_BYTES:
        return False
    with path.open("rb") as file:
        file.seek(-_END_BYTES, 2)
        end = file.read()
    return end.startswith(_END_OF_DIRECTORY) and end[4:6] not in (b"\0\0", b"\xff\xff")


@contextmanager
def open_archive(path: Path, limits: Limits, encoding: str | None = None) -> Iterator[Archive]:
    """Open a zip and check its directory against `limits`; no entry is unpacked here.

    Raises:
        InvalidDataset: It is damaged, too large, encrypted, overlapping, or has names that act as paths.
    """
    size = path.stat().st_size
    if _entries_at_most(path) > limits.entries:
        raise InvalidDataset(f"The archive has too many entries; at most {limits.entries} are accepted.")
    with refusing(DAMAGED):
        file = zipfile.ZipFile(path)
    with file:
        infos = file.infolist()
        _check_sizes(infos, size, limits)
        members = [
            FileEntry(normal(plain_name(_stored_name(info, encoding))), info.file_size, info.compress_size, info)
            for info in infos
        ]
        for member, info in zip(members, infos, strict=True):
            if stat.S_IFMT(info.external_attr >> 16) not in _PLAIN_KINDS:
                raise not_plain(member.filename)
        check_names(member.filename for member in members)
        files = tuple(member for member in members if not member.filename.endswith("/"))
        folders = tuple(member.filename[:-1] for member in members if member.filename.endswith("/"))
        backslashed = tuple(member.filename for member in members if "\\" in member.place.orig_filename)
        yield ZipArchive(files, folders, backslashed, file)


def _entries_at_most(path: Path) -> int:
    """Bound the number of directory entries, before zipfile builds an object for each of them."""
    count, carry = 0, b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            window = carry + chunk
            count += window.count(_DIRECTORY_ENTRY)
            carry = window[1 - len(_DIRECTORY_ENTRY) :]
    return count


def _check_sizes(entries: Sequence[zipfile.ZipInfo], archive_bytes: int, limits: Limits) -> None:
    for entry in entries:
        if entry.flag_bits & 1:
            raise InvalidDataset("The archive is encrypted. Create it without a password.")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            name = _COMPRESSIONS.get(entry.compress_type, f"method {entry.compress_type}")
            raise InvalidDataset(
                f"The archive uses an unusual compression, {name}. Create it with deflate or uncompressed, for example "
                "by 7-Zip, or pack the images as a tar."
            )
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > limits.uncompressed_bytes:
        raise InvalidDataset(f"The archive unpacks to more than the {limits.uncompressed_bytes} bytes accepted.")
    if unpacked > max(limits.ratio_free_bytes, limits.ratio * archive_bytes):
        raise InvalidDataset(
            f"The archive unpacks to more than {limits.ratio} times its size. Create it with less compression."
        )
    # Entries that share their bytes are how a small archive becomes a large one without a high ratio.
    if sum(entry.compress_size for entry in entries) > archive_bytes:
        raise InvalidDataset(DAMAGED)


def _stored_name(info: zipfile.ZipInfo, encoding: str | None) -> str:
    """Return the name as it is stored: `zipfile.ZipInfo.filename` is cut at a NUL.

    Without the flag for UTF-8, the standard means code page 437 and programs write whatever they use. Bytes that
    are UTF-8 are read as such; others only in the encoding that the owner declares.
    """
    if info.flag_bits & _NAMES_ARE_UTF8 or info.orig_filename.isascii():
        return info.orig_filename
    stored = info.orig_filename.encode("cp437")
    try:
        return _unicode_path(info.extra, stored) or stored.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        raise unreadable_name(stored.decode("ascii", errors="replace")) from None


def _unicode_path(extra: bytes, stored: bytes) -> str | None:
    """Return the name in Info-ZIP's extra field (0x7075), if it belongs to the stored one."""
    while len(extra) >= 4:
        kind, length = int.from_bytes(extra[:2], "little"), int.from_bytes(extra[2:4], "little")
        content, extra = extra[4 : 4 + length], extra[4 + length :]
        if kind == _UNICODE_PATH and content[1:5] == zlib.crc32(stored).to_bytes(4, "little"):
            return content[5:].decode(errors="strict")
    return None
