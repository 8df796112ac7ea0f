"""Tar archives from strangers: headers are walked once, contents are read only where a reader asks for them.

Gzip around a tar is removed first (`source.py`), so that entries can be read in any order.
"""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

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

_MAGIC: Final = b"ustar"
_MAGIC_OFFSET: Final = 257
_HEADER_BYTES: Final = 64 * 2**10
"""Longest extended header; tarfile reads one into memory as long as it says it is."""

_PLAIN_KINDS: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)


@dataclass(frozen=True)
class TarArchive(Archive):
    """An open tar; the bytes of an entry lie unpacked at its `place`."""

    file: BinaryIO

    def open(self, entry: FileEntry) -> IO[bytes]:
        return io.BytesIO(self.head(entry, entry.file_size))

    def head(self, entry: FileEntry, size: int) -> bytes:
        self.file.seek(entry.place)
        return self.file.read(min(size, entry.file_size))


class _Headers:
    """A file that returns no more at once than a header may be long."""

    def __init__(self, file: BinaryIO) -> None:
        self.tell, self.seek, self._file = file.tell, file.seek, file

    def read(self, size: int = -1) -> bytes:
        """Read at most `_HEADER_BYTES`, or nothing at all."""
        if not 0 <= size <= _HEADER_BYTES:
            raise InvalidDataset(DAMAGED)
        return self._file.read(size)


def starts_like_tar(path: Path) -> bool:
    """Tell whether the file begins with the header of a tar entry."""
    with path.open("rb") as file:
        return file.read(tarfile.BLOCKSIZE)[_MAGIC_OFFSET : _MAGIC_OFFSET + len(_MAGIC)] == _MAGIC


@contextmanager
def open_tar(path: Path, limits: Limits, encoding: str | None = None) -> Iterator[Archive]:
    """Open a tar and check all its headers against `limits`.

    Raises:
        InvalidDataset: It is damaged, too large, or has links, devices or names that act as paths.
    """
    with path.open("rb") as file:
        members = _members(file, path.stat().st_size, limits, encoding or "utf-8")
        named = [(_name(member), member) for member in members]
        named = [(name, member) for name, member in named if name]
        check_names(f"{name}/" if member.isdir() else name for name, member in named)
        files = tuple(FileEntry(name, one.size, one.size, one.offset_data) for name, one in named if not one.isdir())
        backslashed = tuple(name for name, one in named if "\\" in one.name)
        yield TarArchive(files, tuple(name for name, one in named if one.isdir()), backslashed, file)


def _name(member: tarfile.TarInfo) -> str:
    """Return the name of an entry; "" for the folder that everything lies in."""
    try:
        member.name.encode()
    except UnicodeEncodeError:
        raise unreadable_name(member.name.encode(errors="surrogateescape").decode(errors="replace")) from None
    name = normal(plain_name(member.name))
    return "" if member.isdir() and name == "." else name


def _members(file: BinaryIO, size: int, limits: Limits, encoding: str) -> list[tarfile.TarInfo]:
    members: list[tarfile.TarInfo] = []
    unpacked = 0
    with refusing(DAMAGED):
        archive = tarfile.TarFile(fileobj=cast("IO[bytes]", _Headers(file)), mode="r", encoding=encoding)
        while (member := archive.next()) is not None:
            members.append(member)
            unpacked += member.size
            _check_member(member, size)
            _check_totals(len(members), unpacked, limits)
        _check_end(file, archive.offset)
    return members


def _check_member(member: tarfile.TarInfo, size: int) -> None:
    if member.type not in _PLAIN_KINDS or member.issparse():
        raise not_plain(member.name)
    if member.size < 0 or member.offset_data + member.size > size:
        raise InvalidDataset(DAMAGED)


def _check_totals(entries: int, unpacked: int, limits: Limits) -> None:
    if entries > limits.entries:
        raise InvalidDataset(f"The archive has too many entries; at most {limits.entries} are accepted.")
    if unpacked > limits.uncompressed_bytes:
        raise InvalidDataset(f"The archive unpacks to more than the {limits.uncompressed_bytes} bytes accepted.")


def _check_end(file: BinaryIO, offset: int) -> None:
    """Refuse damage behind the first header, which tarfile takes for the end; the real end is a block of zeros."""
    file.seek(offset)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise InvalidDataset(DAMAGED)
