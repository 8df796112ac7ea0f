"""Programs of this package that run in a process of their own: they need torch, or compute with a stranger's input.

The caller and the program itself agree on the meaning of its exit status.
"""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, final

from datalens_service.base.errors import InvalidInput, StateConflict, WorkerUnavailable

_AT_ONCE: Final = 2
_WAIT_SECONDS: Final = 60
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@final
class Places:
    """Limits the number of programs that run at once to two."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    @contextmanager
    def take(self) -> Iterator[None]:
        """Take one of the places, for as long as the block.

        Raises:
            WorkerUnavailable: Others are busy for too long.
        """
        if not self._free.acquire(timeout=_WAIT_SECONDS):
            raise WorkerUnavailable("Other requests are being computed; repeat the request later.")
        try:
            yield
        finally:
            self._free.release()


def run_program(module: str, *arguments: object, seconds: int) -> None:
    """Run a program to its end.

    Args:
        arguments: Numbers and ids that were checked, and paths of our own.
        seconds: Time until it is killed.

    Raises:
        WorkerUnavailable: It lacks something, was killed or took too long.
        InvalidInput: The input does not fit.
        OSError: The disk is full.
        ChildProcessError: It broke.
    """
    command = [sys.executable, "-P", "-m", module, *map(str, arguments)]
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter and module)
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise WorkerUnavailable("The computation took too long; ask for fewer images at once.") from None
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode == os.EX_UNAVAILABLE:
        raise WorkerUnavailable(said)
    if done.returncode == os.EX_DATAERR:
        raise InvalidInput(said)
    if done.returncode == os.EX_CANTCREAT:
        raise OSError(errno.ENOSPC, "The disk is full.")
    if done.returncode < 0:
        raise WorkerUnavailable(
            "The computation was ended by the machine, likely for lack of memory; ask for fewer images at once."
        )
    if done.returncode != 0:
        raise ChildProcessError(f"The computation ended with status {done.returncode}.")


@contextmanager
def say_what_is_missing(doing: str) -> Iterator[None]:
    """Name what has to be installed for `doing` what the block does.

    Raises:
        WorkerUnavailable: A module of the extra worker is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise WorkerUnavailable(
            f"{doing} needs {error.name}. Install it with: pip install 'datalens-service[worker]'"
        ) from error


def end_with(work: Callable[..., None], arguments: Sequence[str] | None) -> int:
    """Do the work of such a program, and return the exit status that tells how it went, with the reason on stderr.

    Args:
        arguments: Arguments of the work; None takes those of the command line.
    """
    try:
        work(*(sys.argv[1:] if arguments is None else arguments))
    except (WorkerUnavailable, InvalidInput, StateConflict) as error:
        sys.stderr.write(error.text + "\n")
        return os.EX_UNAVAILABLE if isinstance(error, WorkerUnavailable) else os.EX_DATAERR
    except OSError as error:
        if error.errno not in _FULL:
            raise
        return os.EX_CANTCREAT
    return 0
