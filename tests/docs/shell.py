"""A bash of its own at a terminal of its own, in which one command is typed after the other."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import termios
from pathlib import Path
from typing import NamedTuple

# Commands come over one pipe and their exit codes leave over another, so that the terminal is the commands' alone.
_LOOP = 'set -o pipefail; while read -r -u "$0" typed; do source "$typed"; echo $? >&"$1"; done; kill $(jobs -p); wait'
_QUESTION = re.compile(rb"\[y/n\]:? *$", re.IGNORECASE)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r(?=\n)|[^\n]*\r(?!\n)")


class Answer(NamedTuple):
    """What a command printed, on stdout and stderr together, and its exit code."""

    text: str
    code: int


class Shell:
    """Keeps variables and folder from command to command; says `y` where it is asked; ends what runs behind it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._typed = folder / ".typed"
        self._terminal, terminal = pty.openpty()
        _say_what_was_printed(terminal)
        read, self._commands = os.pipe()
        self._codes, write = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", _LOOP, str(read), str(write)],
            stdin=terminal, stdout=terminal, stderr=terminal, pass_fds=(read, write),
            cwd=folder, env=environment, start_new_session=True,
        )  # fmt: skip
        for ours in (terminal, read, write):
            os.close(ours)

    def type(self, command: str) -> Answer:
        """Type it, and wait until it ends."""
        self._typed.write_text(command + "\n")
        os.write(self._commands, f"{self._typed}\n".encode())
        printed = b""
        while True:
            ready = select.select([self._terminal, self._codes], [], [])[0]
            if self._terminal in ready:
                printed += os.read(self._terminal, 65536)
                if _QUESTION.search(printed):
                    os.write(self._terminal, b"y\n")
            elif self._codes in ready:
                return Answer(_CONTROL.sub("", printed.decode()), int(os.read(self._codes, 16)))

    def start(self, command: str) -> None:
        """Type it in a further window, where it runs until the shell is closed."""
        self.type(f"( exec {command}\n) &")

    def close(self) -> None:
        """End the shell and all that it started."""
        os.close(self._commands)
        self._process.wait()
        os.close(self._terminal)
        os.close(self._codes)


def _say_what_was_printed(terminal: int) -> None:
    """No echo of what is typed, and lines end as they were written."""
    settings = termios.tcgetattr(terminal)
    settings[1] &= ~termios.ONLCR
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
