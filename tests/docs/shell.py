"""A bash of its own at a terminal of its own, in which one command is typed after the other."""

import os
import pty
import queue
import re
import subprocess
import termios
import threading
from pathlib import Path
from typing import NamedTuple

# Commands come over a pipe, so that what is typed into the terminal is for them; a mark says where an answer ends.
_LOOP = """
set -o pipefail
while read -r -u "$0" typed; do source "$typed"; printf '\\036%s\\036' $?; done
kill $(jobs -p); wait
"""
_END = re.compile(rb"\x1e(\d+)\x1e")
_QUESTION = re.compile(rb"\[y/n\]:? *$", re.IGNORECASE)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r(?=\n)|[^\n]*\r(?!\n)")


class Answer(NamedTuple):
    """What a command printed, on stdout and stderr together, and its exit code."""

    text: str
    code: int


class Shell:
    """Keeps variables and folder from command to command; says `y` where it is asked; ends what runs behind it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._terminal, terminal = pty.openpty()
        _say_what_was_printed(terminal)
        read, self._commands = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", _LOOP, str(read)],
            stdin=terminal, stdout=terminal, stderr=terminal, pass_fds=(read,),
            cwd=folder, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        os.close(read)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def type(self, command: str) -> Answer:
        """Type it, and wait until it ends."""
        typed = self._folder / ".typed"
        typed.write_text(command + "\n")
        os.write(self._commands, f"{typed}\n".encode())
        return self._answers.get()

    def start(self, command: str) -> None:
        """Type it in a further window, where it runs until the shell is closed."""
        self.type(f"( exec {command}\n) > .window 2>&1 &")

    def close(self) -> None:
        """End the shell and all that it started."""
        os.close(self._commands)
        self._process.wait()
        self._reader.join()
        os.close(self._terminal)

    def _read(self) -> None:
        """Until nobody has the terminal open any more."""
        printed = b""
        while more := self._read_some():
            printed += more
            if _QUESTION.search(printed):
                os.write(self._terminal, b"y\n")
            while end := _END.search(printed):
                self._answers.put(Answer(_CONTROL.sub("", printed[: end.start()].decode()), int(end[1])))
                printed = printed[end.end() :]

    def _read_some(self) -> bytes:
        try:
            return os.read(self._terminal, 65536)
        except OSError:
            return b""


def _say_what_was_printed(terminal: int) -> None:
    """No echo of what is typed, and lines end as they were written."""
    settings = termios.tcgetattr(terminal)
    settings[1] &= ~termios.ONLCR
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
