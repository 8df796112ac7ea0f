"""Modes of files and folders: what holds records, keys or the journal is for the service's own user alone.

With the database comes the key of its fingerprints, so whoever can read it can test whether an image is among the
records. Nothing rests on the mode of the data folder alone, nor on the umask that the service was started with.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from datalens_service.base.errors import StoreUnavailable

OTHERS: Final = 0o077
"""Rights of the group and of everybody else."""


def keep_to_oneself() -> int:
    """Make whatever this process and its children create private to their user; return the earlier umask."""
    return os.umask(OTHERS)


@contextmanager
def private_umask() -> Iterator[int]:
    """`keep_to_oneself` for a block; gives the umask outside of it."""
    before = keep_to_oneself()
    try:
        yield before
    finally:
        os.umask(before)


def private_folder(folder: Path) -> Path:
    """Have a folder that nobody else can enter; make it if need be."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    tighten(folder.resolve())
    return folder


def tighten_all(folder: Path) -> None:
    """Take the rights of others from everything in a folder, from the top down; links are not followed."""
    for place, folders, files in os.walk(folder.resolve()):
        for name in (*folders, *files):
            tighten(Path(place, name))


def tighten(path: Path) -> None:
    """Take the rights of others from a file or folder; one that is not there, or is a link, is left alone."""
    with suppress(FileNotFoundError):
        if not _open_to_others(path):
            return
        with suppress(PermissionError):
            path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~OTHERS)
        # Some file systems have no modes, and take chmod without a word.
        if _open_to_others(path):
            raise StoreUnavailable(
                f"Other users of this machine can read {path}, and the service cannot change that: make it its own "
                "(chown) and private (chmod go-rwx), or name a folder inside of it, which the service will make."
            )


def _open_to_others(path: Path) -> bool:
    mode = path.lstat().st_mode
    return not stat.S_ISLNK(mode) and bool(mode & OTHERS)
