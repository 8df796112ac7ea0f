"""A terminal at which somebody answers."""

import fcntl
import os
import pty
import signal
import subprocess
import termios

from cli.service import DATALENS, PATIENCE
from deployments.fork_servers import warm_environment

_QUESTION = "[y/N]"


def at_terminal(answer: str, *arguments: object) -> tuple[int, str, str]:
    """Run a command whose stdin and stderr are a terminal: exit code, stdout, and what the terminal showed.

    Args:
        answer: Typed at each question, with Enter unless it is a key that needs none.
    """
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*DATALENS, *map(str, arguments)],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        env={**os.environ, **warm_environment(), "COLUMNS": "200", "TERM": "dumb"},
        # Ctrl-C reaches the group whose terminal it is.
        start_new_session=True,
        preexec_fn=_take_terminal,
    ) as process:
        os.close(theirs)
        try:
            shown = _answer(ours, f"{answer}\n" if answer.isprintable() else answer)
            stdout, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    os.close(ours)
    return process.returncode, stdout.decode(), shown.replace("\r\n", "\n")


def _take_terminal() -> None:
    """The standard input becomes the terminal that controls the new session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A shell that runs tests in the background lets its processes ignore it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _answer(terminal: int, typed: str) -> str:
    """What the terminal showed until nobody had it open any more."""
    shown, asked = "", 0
    while piece := _read(terminal):
        shown += piece
        if shown.count(_QUESTION) > asked:
            asked += 1
            os.write(terminal, typed.encode())
    return shown


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 2**16).decode()
    except OSError:
        return ""
