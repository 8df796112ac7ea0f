"""Disks: what a rename or a new file needs to survive a power cut, and what it means when one is full."""

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from datalens_service.base.errors import InsufficientStorage, StoreUnavailable

RESERVED_BYTES = 2**24
"""A disk with less room than this counts as full before it is (16 MiB)."""

_PROBE_BYTES = 4096
_MOUNTS = Path("/proc/self/mountinfo")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BROKEN = (errno.EROFS, errno.EIO)
_QUOTED = re.compile(r"\(os error (\d+)\)")


def is_full(error: BaseException) -> bool:
    """Return True if a disk or a quota is used up."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    # safetensors quotes the operating system in an error of its own.
    quoted = _QUOTED.search(str(error))
    return quoted is not None and int(quoted[1]) in _FULL


def is_of_disk(error: OSError) -> bool:
    """Return True if a disk is used up, cannot be written, or fails."""
    return error.errno in (*_FULL, *_BROKEN)


def unavailable(error: OSError, detail: str) -> StoreUnavailable:
    """The error to raise instead of `error`: of its own type where the disk is full.

    Args:
        detail: A sentence on what did not happen, and what to do.
    """
    return InsufficientStorage(detail) if is_full(error) else StoreUnavailable(detail)


@contextmanager
def translated(detail: str) -> Generator[None]:
    """Raise what `unavailable` makes of an error of the disk.

    Raises:
        InsufficientStorage: The disk is full.
        StoreUnavailable: Something else.
    """
    try:
        yield
    except OSError as error:
        raise unavailable(error, detail) from error


def list_mounts(folder: Path) -> list[Path]:
    """Return the folders at any depth below `folder` that lie on another disk: mounted there, or linked to from it."""
    own = folder.resolve()
    points = (_unescape(line.split()[4]) for line in _MOUNTS.read_text().splitlines())
    mounted = {Path(point) for point in points if own in Path(point).parents}
    linked = {path for path in folder.iterdir() if path.is_symlink() and path.is_dir()}
    return sorted(mounted | {path for path in linked if own not in path.resolve().parents})


def _unescape(point: str) -> str:
    """Undo what the kernel writes for spaces and the like in the path of a mount."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point)


def list_files(folder: Path) -> list[Path]:
    """List the files at any depth below a folder, from which another process may remove some meanwhile.

    Raises:
        OSError: The disk cannot be read.
    """

    def check(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    walked = os.walk(folder, topdown=False, onerror=check)
    return [Path(place) / name for place, _, names in walked for name in names]


def remove_folder(folder: Path) -> None:
    """Remove a folder with everything in it, which another process may do at the same time.

    Raises:
        OSError: The disk does not let it go.
    """
    while folder.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


@contextmanager
def lock_folder(folder: Path, kind: int) -> Generator[None]:
    """Hold a lock on a folder, which is made if need be, until the block is left or the process ends.

    Args:
        kind: As `fcntl.flock` takes it: whoever uses what lies there shares it, whoever removes leftovers does not.

    Raises:
        BlockingIOError: It must not wait, and another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, kind)
        yield


def check_writable(folder: Path, name: str) -> None:
    """Refuse a disk that is full, or about to be: less than `RESERVED_BYTES` free, or no durable write.

    Args:
        folder: On it; one that is not there yet counts as the folder it will be made in.
        name: The operator's name for it.

    Raises:
        InsufficientStorage: It is full.
        StoreUnavailable: It cannot be written for another reason.
    """
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    with translated(f"The disk of {name} is full or cannot be written; look at it."):
        if shutil.disk_usage(existing).free < RESERVED_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _write_durably(existing)


def _write_durably(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(bytes(_PROBE_BYTES))
        os.fsync(file.fileno())
