"""An uploaded file, opened once for all readers: gzip taken off, the directory of an archive checked."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from datalens_service.data.notices import Notices
from datalens_service.data.untrusted.entries import DAMAGED, Archive, Entry, refusing
from datalens_service.data.untrusted.images import STRICT, PictureDecoder
from datalens_service.data.untrusted.limits import Limits
from datalens_service.data.untrusted.tar import open_tar, starts_like_tar
from datalens_service.data.untrusted.zip_archive import open_archive, starts_like_zip
from datalens_service.errors import InvalidDataset

GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 2**20


@dataclass(frozen=True)
class Source:
    """What a reader gets.

    Attributes:
        path: The file, without gzip.
        archive: Its entries, if it is a zip or a tar.
        is_tar: Whether it is a tar.
        limits: Caps on what is read and unpacked.
        notices: Collects what its owner should know.
        decoder: Of the images in it.
    """

    path: Path
    archive: Archive | None
    is_tar: bool
    limits: Limits
    notices: Notices = field(default_factory=Notices)
    decoder: PictureDecoder = STRICT

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Entries of the archive; none if it is not one."""
        return self.archive.entries if self.archive else ()

    def head(self, entry: Entry, size: int) -> bytes:
        """First `size` bytes of an entry.

        Raises:
            InvalidDataset: It is damaged.
        """
        if self.archive is None:
            raise InvalidDataset(DAMAGED)
        return self.archive.head(entry, size)

    def start(self, size: int) -> bytes:
        """First `size` bytes of the file."""
        with self.path.open("rb") as file:
            return file.read(size)


@contextmanager
def open_source(path: Path, limits: Limits, decoder: PictureDecoder = STRICT) -> Iterator[Source]:
    """Open an upload of any kind.

    Args:
        path: The file.
        limits: Caps on what is read and unpacked.
        decoder: Of the images in it.

    Raises:
        InvalidDataset: It is an archive that is damaged, too large or unsafe.
    """
    with ExitStack() as stack:
        with path.open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
        plain = stack.enter_context(_unpacked(path, limits)) if packed else path
        is_tar = starts_like_tar(plain)
        opener = open_tar if is_tar else open_archive if starts_like_zip(plain) else None
        archive = stack.enter_context(opener(plain, limits)) if opener else None
        yield Source(plain, archive, is_tar, limits, decoder=decoder)


@contextmanager
def _unpacked(path: Path, limits: Limits) -> Iterator[Path]:
    """A temporary file with what gzip held."""
    most = allowance(path.stat().st_size, limits)
    with tempfile.NamedTemporaryFile(prefix="datalens-") as target:
        with refusing(DAMAGED), gzip.open(path) as source:
            copy_at_most(source, target, most, limits)
        target.flush()
        yield Path(target.name)


def allowance(packed_bytes: int, limits: Limits) -> int:
    """Most bytes that something of `packed_bytes` may unpack to."""
    return min(limits.uncompressed_bytes, max(limits.ratio_free_bytes, limits.ratio * packed_bytes))


def copy_at_most(source: IO[bytes] | gzip.GzipFile, target: IO[bytes], most: int, limits: Limits) -> None:
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
