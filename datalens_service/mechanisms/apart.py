"""Contributions in processes of their own, of which nothing comes back but arrays.

Whatever a contribution writes to (modules, classes, caches, seeds, environment, the records themselves), it writes to a
copy that ends with the process. So it hands nothing on to the next question, nor to the script of its method.

    driver ──fork──▶ child: one thread, no output ──arrays──▶ driver

The child has the memory of the driver as it was, so nothing is sent to it. It costs a fork for each question, and the
other threads of torch: docs/mechanisms/wall.md.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import ContributionFailed
from datalens_service.mechanisms.confined import FAILED, confined, confined_items

_ENDED, _FAILED, _LACKS_MEMORY = "ended", "failed", "lacks memory"
_NUMBERS: Final = "biuf"
"""Kinds of arrays that may come back; objects and texts may not."""
_CONTRIBUTIONS: Final = "datalens_service.mechanisms."
"""Named tuples that are defined below this package come back as such."""


class Apart:
    """Calls each function in a process that is forked for it."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        (made,) = _ask_once(lambda: [function(*arguments)])
        return made

    def items(self, function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        return _ask_once(lambda: function(*arguments))


Work = Callable[[Iterator[Any], "Replies"], None]
"""The work of a child: it takes questions as they come, and the way back."""


class Child:
    """A forked process that answers questions with arrays, one after the other, until this object is gone.

    Args:
        work: The work that the child does.
    """

    def __init__(self, work: Work) -> None:
        self._connection, other = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._connection.close()
            _work(work, other)
        other.close()

    def ask(self, *question: Any) -> Iterator[Any]:
        """Ask a question, and yield the parts of the answer.

        Raises:
            ContributionFailed: The child failed, or is gone.
            MemoryError: It lacked memory.
        """
        try:
            self._connection.send((question[0], question[1:]))
            while (header := json.loads(self._connection.recv_bytes())) not in (_ENDED, _FAILED, _LACKS_MEMORY):
                yield _received(self._connection, header)
        except (EOFError, OSError):
            header = _FAILED
        if header == _LACKS_MEMORY:
            raise MemoryError
        if header == _FAILED:
            raise ContributionFailed(FAILED)

    def end(self) -> None:
        if self._pid:
            self._connection.close()
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def __del__(self) -> None:
        with suppress(OSError):
            self.end()


def _ask_once(produce: Callable[[], Any]) -> Iterator[Any]:
    child = Child(partial(_answer, produce))
    try:
        yield from child.ask("")
    finally:
        child.end()


def _answer(produce: Callable[[], Any], questions: Iterator[Any], replies: Replies) -> None:
    next(questions)
    with replies.ending():
        for item in confined_items(iter(confined(produce))):
            replies.send(item)


def _work(work: Work, connection: Connection) -> NoReturn:
    """Run the work of the child, then end its process without clean-up, which would touch what its parent shares."""
    try:
        # A collection would run finalizers of objects that belong to the parent.
        gc.disable()
        gc.freeze()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Output would tell of records.
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        # A forked process has one thread: those of its parent's pools are gone, and would be waited for.
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        work(iter(connection.recv, None), Replies(connection))
    finally:
        os._exit(0)


class Replies:
    """The way back from a child: it carries arrays, and how the work on a question ended."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, made: Any) -> None:
        """Send arrays or tensors: one of them, a tuple of them, or some by their names."""
        names, parts = [""], [made]
        if isinstance(made, dict):
            names, parts = list(made), list(made.values())
        elif isinstance(made, tuple):
            names, parts = [str(place) for place in range(len(made))], list(made)
        arrays = [_as_array(part) for part in parts]
        described = zip(names, map(_kind, parts), arrays, strict=True)
        header = {
            "of": f"{type(made).__module__}:{type(made).__qualname__}",
            "parts": [[name, kind, array.dtype.str, array.shape] for name, kind, array in described],
        }
        self._connection.send_bytes(json.dumps(header).encode())
        for array in arrays:
            if array.nbytes:
                self._connection.send_bytes(array.data.cast("B"))

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Report how the work within ended: well, out of memory, or in a failure of which nothing else is said."""
        ended = _ENDED
        try:
            yield
        except MemoryError:
            ended = _LACKS_MEMORY
        except ContributionFailed:
            ended = _FAILED
        self._connection.send_bytes(json.dumps(ended).encode())


def _kind(part: Any) -> str:
    return "slice" if isinstance(part, slice) else "tensor" if hasattr(part, "detach") else "array"


def _as_array(part: Any) -> NDArray[Any]:
    if isinstance(part, slice):
        return np.array([part.start, part.stop], dtype=np.int64)
    array = np.ascontiguousarray(part.detach().cpu().numpy() if hasattr(part, "detach") else part)
    if array.dtype.kind not in _NUMBERS:
        raise ContributionFailed(FAILED)
    return array


def _received(connection: Connection, header: dict[str, Any]) -> Any:
    """Rebuild what a child sent, from arrays alone."""
    parts = {name: _part(connection, *described) for name, *described in header["parts"]}
    module, _, name = header["of"].partition(":")
    if (module, name) == ("builtins", "dict"):
        return parts
    if list(parts) == [""]:
        return parts[""]
    # Only the tuples that mechanisms sum are rebuilt by their name; nothing a method defines runs here.
    if not module.startswith(_CONTRIBUTIONS):
        return tuple(parts.values())
    return getattr(sys.modules[module], name)(*parts.values())


def _part(connection: Connection, kind: str, dtype: str, shape: list[int]) -> Any:
    if np.dtype(dtype).kind not in _NUMBERS:
        raise ContributionFailed(FAILED)
    array = np.empty(shape, dtype=dtype)
    if array.nbytes:
        connection.recv_bytes_into(array.data.cast("B"))
    if kind == "slice":
        return slice(*array.tolist())
    return sys.modules["torch"].from_numpy(array) if kind == "tensor" else array
