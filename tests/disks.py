"""A small disk that a test can fill: a file system of its own where mounting is allowed, else a limit on files."""

import os
import resource
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from datalens_service.store.disk import RESERVED_BYTES

SMALL_BYTES = 2 * RESERVED_BYTES
LIMIT_BYTES = 2**16
"""Where nothing can be mounted: files longer than this cannot grow while the disk counts as full."""


class SmallDisk(ABC):
    """An empty folder on a disk.

    Attributes:
        folder: It.
        real: Whether every write fails while it is full, not only those of long files.
    """

    real: bool

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def full(self, left: int = 0) -> Generator[None]:
        """Leave `left` bytes while the block runs."""


class MountedDisk(SmallDisk):
    """A file system in memory."""

    real = True

    @contextmanager
    def full(self, left: int = 0) -> Generator[None]:
        filler = self.folder / "filler"
        _fill(filler)
        os.truncate(filler, max(0, filler.stat().st_size - left))
        try:
            yield
        finally:
            filler.unlink()


class LimitedDisk(SmallDisk):
    """Any folder: the operating system refuses this process long files while it is full."""

    real = False

    @contextmanager
    def full(self, left: int = 0) -> Generator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES + left, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(folder: Path, size: int = SMALL_BYTES) -> Iterator[SmallDisk]:
    """A disk of `size` bytes at `folder`, which exists and is empty."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        yield LimitedDisk(folder)
        return
    try:
        yield MountedDisk(folder)
    finally:
        # Lazily: a process that is on its way out may still have a file open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
