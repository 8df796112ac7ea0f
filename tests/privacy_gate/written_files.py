"""Which files this process makes, wherever they lie: Python tells of every one that it opens, moves or links.

Threads that ran before a watch began are ignored: they may belong to an API that another test has started.
"""

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from .alarm import Alarm

_WATCHED: dict[int, tuple[list[Path], frozenset[threading.Thread]]] = {}
"""For each watch, the names written to so far, and the other threads that ran when it began."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if not _WATCHED or event not in ("open", "os.mkdir", "os.rename", "os.link", "os.symlink"):
        return
    path = arguments[1] if event in ("os.rename", "os.link", "os.symlink") else arguments[0]
    flags = arguments[2] if event == "open" and isinstance(arguments[2], int) else _WRITES
    if not flags & _WRITES or not isinstance(path, str | bytes | os.PathLike):
        return
    written = Path(os.fsdecode(path)).absolute()
    # A folder that is there is not made again; whoever opens it makes a file without a name.
    if event not in ("open", "os.mkdir") or not written.is_dir():
        for made, others in list(_WATCHED.values()):
            if threading.current_thread() not in others:
                made.append(written)


@contextmanager
def written_files() -> Generator[list[Path]]:
    """Names that were written to within, in the end those that are still there."""
    if not _HOOKED:
        sys.addaudithook(_note)
        _HOOKED.append(True)
    made: list[Path] = []
    others = frozenset(threading.enumerate()) - {threading.current_thread()}
    _WATCHED[id(made)] = made, others
    try:
        # A module that is imported for the first time on this machine would be kept as bytecode.
        with mock.patch.object(sys, "dont_write_bytecode", True):
            yield made
    finally:
        del _WATCHED[id(made)]
        made[:] = sorted({path for path in made if path.exists() and not path.is_relative_to("/dev/null")})


@contextmanager
def nothing_is_written() -> Generator[None]:
    """Raise `Alarm` where a file that was written to within is still there in the end."""
    with written_files() as made:
        yield
    if made:
        raise Alarm(f"a contribution leaves no file behind: {made[0]}")


_HOOKED: list[bool] = []
"""Whether the hook is there; none can be taken away."""
