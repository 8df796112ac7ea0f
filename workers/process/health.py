"""Is the Celery worker of this container alive? `python -m workers.process.health` exits with 0 if so.

The worker touches a file after each round in which database and broker answered.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

_SECONDS = 60.0


def alive() -> None:
    """Note that the worker is alive now."""
    folder = _file().parent
    folder.mkdir(exist_ok=True, mode=0o700)
    _file().touch()


def is_alive() -> bool:
    """Whether `alive` was called within the last minute."""
    try:
        return time.time() - _file().stat().st_mtime < _SECONDS
    except FileNotFoundError:
        return False


def _file() -> Path:
    return Path(tempfile.gettempdir()) / f"datalens-worker-{os.getuid()}" / "alive"


if __name__ == "__main__":
    sys.exit(0 if is_alive() else 1)
