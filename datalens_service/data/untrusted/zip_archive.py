"""Zip archives from strangers: checked as a whole before anything in them is unpacked.

Nothing is ever extracted to disk, so names are labels and not paths; those that try to be paths are refused.
"""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from datalens_service.data.untrusted.entries import DAMAGED, Archive, Entry, check_names, not_plain, refusing
from datalens_service.data.untrusted.limits import Limits
from datalens_service.errors import InvalidDataset

_START = b"PK\x03\x04"
_DIRECTORY_ENTRY = b"PK\x01\x02"
_CHUNK = 2**20
_PLAIN_KINDS = (0, stat.S_IFREG, stat.S_IFDIR)


@dataclass(frozen=True)
class ZipArchive:
    """An open zip whose directory passed every check.

    Attributes:
        file: The open zip.
        entries: Its files, without directories, in stored order.
    """

    file: zipfile.ZipFile
    entries: tuple[Entry, ...]

    def open(self, entry: Entry) -> IO[bytes]:
        """Stream of an entry. Give `read` a size: without one, zipfile unpacks more than the entry declares."""
        return self.file.open(cast("zipfile.ZipInfo", entry))

    def head(self, entry: Entry, size: int) -> bytes:
        """First `size` bytes of an entry."""
        with refusing(DAMAGED), self.open(entry) as stream:
            return stream.read(size)


def starts_like_zip(path: Path) -> bool:
    """Whether the file begins with the header of a zip entry."""
    with path.open("rb") as file:
        return file.read(len(_START)) == _START


@contextmanager
def open_archive(path: Path, limits: Limits) -> Iterator[Archive]:
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
        entries = file.infolist()
        _check_sizes(entries, size, limits)
        _check_kinds(entries)
        check_names(_stored_name(entry) for entry in entries)
        yield ZipArchive(file, tuple(entry for entry in entries if not entry.is_dir()))


def _entries_at_most(path: Path) -> int:
    """Upper bound of directory entries, found before zipfile builds an object for each of them."""
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
            raise InvalidDataset("The archive uses an unusual compression. Create it with deflate or uncompressed.")
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


def _check_kinds(entries: Sequence[zipfile.ZipInfo]) -> None:
    if any(stat.S_IFMT(entry.external_attr >> 16) not in _PLAIN_KINDS for entry in entries):
        raise not_plain()


def _stored_name(entry: zipfile.ZipInfo) -> str:
    """As it stands in the file: `filename` is cut at a NUL."""
    return entry.orig_filename
