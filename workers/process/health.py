"""Tells whether the Celery workers of this machine are alive.

`python -m datalens_service.workers.process.health` exits with 0 if they do.

Alive is a worker whose loop turns, whatever broker and database do: a restart would not help those, and would
interrupt a job. Each worker touches a file of its own, which it keeps locked, so that the files of dead workers are
told from those of workers that hang. `--ready` asks instead whether the database answers.
"""

import argparse
import contextlib
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ALIVE_SECONDS: Final = 120.0
"""A turn waits for the locks of the database, at most half a minute each."""


class HealthFile:
    """The file of this process; locked until the process has ended, however it ends."""

    def __init__(self) -> None:
        _folder().mkdir(exist_ok=True, mode=0o700)
        path = _folder() / str(os.getpid())
        self._descriptor = _open_locked(path)
        while not _is_at(self._descriptor, path):
            # Somebody removed it as that of an earlier process with this number.
            os.close(self._descriptor)
            self._descriptor = _open_locked(path)
        self.touch()

    def touch(self) -> None:
        """Note that the loop has turned."""
        # Not the clock of the wall, which may be set while the worker is at work.
        turned = time.monotonic()
        os.utime(self._descriptor, (turned, turned))


def alive() -> bool:
    """Return True if this user has a worker on this machine, and each of them has taken a turn lately."""
    ages = [age for path in _folder().glob("*") if (age := _age(path)) is not None]
    return bool(ages) and max(ages) < ALIVE_SECONDS


def ready() -> bool:
    """Return True if the database answers; jobs need no broker."""
    from datalens_service.adapters.startup import connect
    from datalens_service.base.errors import DatalensError
    from datalens_service.base.settings import Settings
    from datalens_service.store.patience import impatient

    try:
        settings = Settings()
        with impatient():
            connect(settings).dispose()
    except DatalensError as error:
        sys.stderr.write(f"{error.detail}\n")
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 for yes."""
    parser = argparse.ArgumentParser(
        prog="python -m datalens_service.workers.process.health", description="Are the workers alive?"
    )
    parser.add_argument("--ready", action="store_true", help="whether the database answers, instead")
    return 0 if (ready() if parser.parse_args(arguments).ready else alive()) else 1


def _open_locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _age(path: Path) -> float | None:
    """Seconds since the last turn; None for a worker that has ended, whose file is removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared, so that two who ask at once do not take each other for a worker.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return time.monotonic() - os.fstat(descriptor).st_mtime
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return None
    finally:
        os.close(descriptor)


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"datalens-worker-{os.getuid()}"


if __name__ == "__main__":
    sys.exit(main())
