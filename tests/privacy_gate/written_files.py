"""Whoever computes with records leaves no file behind: a block in which opening one to write raises the alarm."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .alarm import Alarm

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_blocks: list[None] = []
_hooked: list[None] = []


@contextmanager
def nothing_is_written() -> Iterator[None]:
    """Raise `Alarm` where Python opens a file to write, in whatever folder."""
    if not _hooked:
        # It stays for the life of the process, and looks at nothing outside of a block.
        sys.addaudithook(_look)
        _hooked.append(None)
    _blocks.append(None)
    try:
        yield
    finally:
        _blocks.pop()


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if not _blocks:
        return
    if event != "open" or not isinstance(arguments[0], str | bytes) or arguments[0] == os.devnull:
        return
    if isinstance(arguments[2], int) and arguments[2] & _WRITES:
        raise Alarm(f"a contribution opens no file to write: {arguments[0]}")
