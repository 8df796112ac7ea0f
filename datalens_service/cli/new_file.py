"""Files that commands write: whole or not at all, and never over another one unless --force was given."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from datalens_service.client import ClientError

_PREFIX: Final = ".datalens-"


@contextmanager
def new_file(path: Path, *, force: bool) -> Iterator[Path]:
    """A place in a folder beside `path`, closed to others; what is written there gets this name when the block ends.

    Args:
        force: True if it may take the place of another file, or of a link, which is not followed.

    Raises:
        ClientError: There is something of this name.
        OSError: With `path`, whatever file in between it was about.
    """
    check_free(path, force=force)
    try:
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=path.parent) as folder:
            yield Path(folder) / "new"
            _publish(Path(folder) / "new", path, force)
    except OSError as error:
        is_about_another = error.filename is not None and _PREFIX not in str(error.filename)
        if error.errno is None or is_about_another:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def private_file(path: Path, *, force: bool) -> Iterator[Path]:
    """Make a new file as `new_file` does, which nobody else on a shared machine can read: it is for the owner alone."""
    with new_file(path, force=force) as new:
        yield new
        new.chmod(0o600)


def check_free(path: Path, *, force: bool) -> None:
    """Refuse a name that is taken, before anything is computed or fetched for it."""
    try:
        path.lstat()
    except FileNotFoundError:
        return
    if path.exists() and not path.is_file():
        raise ClientError("file", "File not usable", f"{path} is not a file: name another one.")
    if not force:
        raise _taken(path)


def _publish(written: Path, path: Path, force: bool) -> None:
    if force:
        written.replace(path)
        return
    try:
        _link(written, path)
    except FileExistsError:
        raise _taken(path) from None


def _link(written: Path, path: Path) -> None:
    try:
        os.link(written, path)
    except OSError:
        # There is a file, or a file system without links: the name is taken first.
        path.touch(exist_ok=False)
        written.replace(path)


def _taken(path: Path) -> ClientError:
    return ClientError("file", "File not usable", f"{path} exists: name another file, or replace it with --force.")
