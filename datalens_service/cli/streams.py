"""Standard streams as they come: closed, full, with nobody at the other end, or unable to show every character."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


def prepare_streams() -> None:
    """Let every text be written; what a terminal cannot show is shown as a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def drop_broken() -> None:
    """Send what a broken stream has not taken nowhere, and all that follows, so that it fails only once."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not _takes_text(stream):
            _send_nowhere(stream)


def is_unread(ending: BaseException) -> bool:
    """Whether nobody reads the output any more; rich ends the program then."""
    return isinstance(ending, BrokenPipeError) or (
        isinstance(ending, SystemExit) and isinstance(ending.__context__, BrokenPipeError)
    )


@contextmanager
def unheard() -> Iterator[None]:
    """Within the block, a stream that takes nothing is not worth an error: nobody would hear of it."""
    try:
        yield
    except (OSError, SystemExit) as error:
        if isinstance(error, SystemExit) and not is_unread(error):
            raise
        drop_broken()


def _takes_text(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _send_nowhere(stream: TextIO) -> None:
    # A stream that is no file of the operating system's has nothing to redirect.
    with suppress(OSError, ValueError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
