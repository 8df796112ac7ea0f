"""Ctrl-C while a job runs in this process: once asks it to stop between two steps, twice ends it at once.

An exception in the middle of a transaction may leave the database locked by this very process. A request that is
checked between steps cannot, and no step is paid twice.
"""

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import Final, Self

from datalens_service.jobs.job_watch import ShutdownRequested

_STDERR: Final = 2
_MESSAGE: Final = "\nStopping as soon as this step is done; Ctrl-C again stops at once.\n"


class Interruption:
    """Takes the first Ctrl-C within its block as a request; the second raises KeyboardInterrupt as ever.

    Only for the main thread. A process that was started with SIGINT ignored, as in the background of a shell,
    goes on ignoring it.
    """

    def __init__(self) -> None:
        self._requested = False
        self._installed = False

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle_signal)
            self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Call between two steps.

        Raises:
            ShutdownRequested: Somebody pressed Ctrl-C.
        """
        if self._requested:
            raise ShutdownRequested

    def _handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Not through a stream, which the interrupted code may be writing to. If nobody hears it, it stops all the same.
        with suppress(OSError):
            os.write(_STDERR, _MESSAGE.encode())
