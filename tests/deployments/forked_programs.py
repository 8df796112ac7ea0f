"""Programs under test that begin as forks of the process that has imported everything, in milliseconds for seconds.

    who starts it ── arguments, folder, variables, streams ──▶ importer ──fork──▶ the program
       ◀── its process id, and its exit code; whoever is gone takes the program along

A process of Python that starts one of `_COMMANDS` (`held/sitecustomize.py`) hands its streams over, passes signals on,
and ends as its fork ends. It imports nothing until then.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

VARIABLE = "TEST_FORK_SERVER"
"""Path of the socket at which a worker under test asks for its server, a program for its fork."""

_PROGRAMS = ("individual_epsilon", "prediction", "sampling")
_COMMANDS = (
    "datalens_service.cli",
    "datalens_service.workers.process.supervisor",
    *(f"datalens_service.subprocesses.{name}" for name in _PROGRAMS),
)
_SCRIPT = "datalens"
_COLD = ("serve", "plugins")
"""What serves for long, and what reads which packages are installed."""
_STREAMS = (0, 1, 2)
_CODE_BYTES = 4
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ForkedProgram:
    """A program that runs in a fork, as `subprocess.Popen` has it.

    Args:
        program: Module, or path of the script, and arguments.
        variables: All of them; one names the socket of the importer.
        streams: Descriptors of its standard input, output and errors.

    Raises:
        OSError: One of the streams is closed.
    """

    def __init__(
        self, program: Sequence[str], variables: Mapping[str, str], streams: Sequence[int], folder: Path | None = None
    ) -> None:
        asked = {"program": program, "folder": str(folder or Path.cwd()), "variables": {**variables}}
        asked["stands_for"] = os.getpid()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(variables[VARIABLE])
        socket.send_fds(self._connection, [read_mask()], streams)
        self._connection.sendall(json.dumps(asked).encode() + b"\n")
        self.pid = _receive(self._connection)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Exit code, if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, once it has ended."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a fork", timeout or 0)
            self.returncode = _receive(self._connection)
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def become_fork(command: list[str]) -> None:
    """Do a command in a fork, and end as it ends; return where it is none, is one of `_COLD`, or lacks a stream."""
    words = [word for word in command[1:] if word not in ("-P", "-u")]
    if words[:1] == ["-m"] and words[1] in _COMMANDS:
        words = words[1:]
    elif not words or Path(words[0]).name != _SCRIPT:
        return
    if {*words[1:2]} & {*_COLD}:
        return
    try:
        fork = ForkedProgram(words, os.environ, _STREAMS)
    except OSError:
        return
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: fork.send_signal(number))
    try:
        code = fork.wait()
    except ConnectionError:
        code = os.EX_OSERR
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def read_mask() -> bytes:
    """Of this process, which those that are forked for it have, too; whoever asks for a fork says it first."""
    mask = os.umask(0)
    os.umask(mask)
    return bytes([mask])


def receive_streams(connection: socket.socket) -> list[int]:
    """Take the mask; the streams that a program hands over, and nothing from a worker, which asks for a fork server."""
    mask, streams, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
    os.umask(mask[0])
    return streams


def serve_program(connection: socket.socket, streams: list[int]) -> NoReturn:
    """In a fork of the importer: fork once more, for what is asked for, and tell how that ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked = json.loads(connection.makefile("rb").readline())
    pid = os.fork()
    if pid == 0:
        connection.close()
        os._exit(_run(asked, streams))
    for stream in streams:
        os.close(stream)
    with suppress(OSError):
        _send(connection, pid)
        ended, _, _ = select.select([connection, watched := os.pidfd_open(pid)], [], [])
        if watched not in ended:
            os.kill(pid, signal.SIGKILL)
        _send(connection, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _run(asked: dict[str, Any], streams: list[int]) -> int:
    """Exit code of a program in this process, of which nothing is taken apart at its end."""
    import atexit
    import runpy
    import threading
    import warnings

    _begin_anew(asked, streams)
    warnings.filterwarnings("ignore", ".* found in sys.modules after import", RuntimeWarning)
    code = 0
    try:
        if Path(sys.argv[0]).is_absolute():
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 (as the interpreter does)
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for printed in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            printed.flush()
    return code


def _begin_anew(asked: dict[str, Any], streams: list[int]) -> None:
    """As if this process had been started, with seeds that no other has."""
    import random
    import tempfile

    import numpy as np

    from deployments.fork_servers import use
    from processes import parent_of

    os.setsid()
    # A supervisor ends with whoever started it.
    os.getppid = lambda: parent_of(asked["stands_for"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, number in zip(streams, _STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (open(number, "rw"[number > 0], closefd=False) for number in _STREAMS)  # noqa: SIM115
    sys.stderr.reconfigure(errors="backslashreplace", line_buffering=True)
    os.environ.clear()
    os.environ.update(asked["variables"])
    os.chdir(asked["folder"])
    sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place not in sys.path]
    sys.argv[:] = asked["program"]
    sys.orig_argv[:] = [sys.executable, *asked["program"]]
    tempfile.tempdir = None
    random.seed()
    np.random.seed()
    use(os.environ[VARIABLE])


def _send(connection: socket.socket, number: int) -> None:
    connection.sendall(number.to_bytes(_CODE_BYTES, signed=True))


def _receive(connection: socket.socket) -> int:
    received = connection.recv(_CODE_BYTES, socket.MSG_WAITALL)
    if len(received) < _CODE_BYTES:
        raise ConnectionError("the importer was lost")
    return int.from_bytes(received, signed=True)
