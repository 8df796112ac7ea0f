"""The process that forks job processes, from outside: start it, have it fork, and follow what it forked.

    worker ──▶ fork server: imports, then waits ──fork──▶ job process, in a session of its own
       ◀── its process id, and once it has ended its exit code ──┘

The server ends with its worker. Job processes outlive both.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from datalens_service.base.errors import WorkerUnavailable

INTEGER: Final = struct.Struct("!i")
"""A process id or an exit code, as the server tells it."""

HAS_GPU: Final = b"G"
"""First byte of the server if jobs find a GPU; otherwise it is a line's end."""

_NO_TORCH: Final = "PyTorch is not installed beside it; install datalens-service[worker] there."
WAITS_ASLEEP: Final = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait spin by default; where other work runs beside a job, that makes it many times slower."""


_GPU_UNTOUCHED: Final = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Lets torch look for a GPU without loading the driver, which no forked process could use afterwards."""


class ForkServer:
    """The server of this worker; started when it is first looked for, and anew after it was lost.

    Attributes:
        has_gpu: True if torch finds one; None until the server has told.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self.has_gpu: bool | None = None

    def ready(self) -> bool:
        """Return True if a job could start at once.

        Raises:
            WorkerUnavailable: The server ended, for example because torch is not installed.
        """
        with self._turn:
            if (missing := explain_missing_package()) is not None:
                raise WorkerUnavailable(missing)
            if self._process is None:
                self._start()
            elif (code := self._process.poll()) is not None:
                self._stop(self._process)
                raise WorkerUnavailable(f"The process that starts jobs ended with code {code}; it is started again.")
            elif not self._ready and _is_readable(self._control, 0):
                told = self._control.recv(1)
                self._ready, self.has_gpu = bool(told), told == HAS_GPU
            return self._ready

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str], output: int, errors: int) -> ForkedProcess:
        """Start `workers.run_job` in a process of its own."""
        ours, theirs = socket.socketpair()
        with suppress(OSError):
            with theirs, self._turn:
                socket.send_fds(self._control, [b"\n"], [theirs.fileno(), output, errors])
            # Read by the process that was forked: the variables may be more than a socket holds.
            ours.sendall(json.dumps([[*arguments], {**environment}]).encode() + b"\n")
        return ForkedProcess(ours)

    def close(self) -> None:
        """End the server; what it forked goes on."""
        with self._turn:
            if self._process is not None:
                self._stop(self._process)

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "datalens_service.workers.fork_jobs"],
                stdin=theirs.fileno(),
                start_new_session=True,
                env=WAITS_ASLEEP | _GPU_UNTOUCHED | os.environ,
            )

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        self._control.close()
        process.kill()
        process.wait()
        self._process, self._ready = None, False


class ForkedProcess:
    """A process that the server forked.

    Raises:
        WorkerUnavailable: The server was lost before it forked.
    """

    def __init__(self, replies: socket.socket) -> None:
        self._replies = replies
        self._code: int | None = None
        pid = self._receive()
        if pid is None:
            raise WorkerUnavailable("The process that starts jobs was lost.")
        self.pid = pid

    def wait(self, seconds: float | None = None) -> int | None:
        """Exit code, or None if it still runs after `seconds`; that of a killed one where the server was lost."""
        if self._code is None and _is_readable(self._replies, seconds):
            code = self._receive()
            self._code = -signal.SIGKILL if code is None else code
            self._replies.close()
        return self._code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.wait(0) is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it and everything in its session, at once."""
        if self.wait(0) is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _receive(self) -> int | None:
        received = self._replies.recv(INTEGER.size, socket.MSG_WAITALL)
        return int(INTEGER.unpack(received)[0]) if len(received) == INTEGER.size else None


def explain_missing_package() -> str | None:
    """Say why no server can start with the packages that are installed; None if one can."""
    return None if importlib.util.find_spec("torch") else _NO_TORCH


def _is_readable(connection: socket.socket, seconds: float | None) -> bool:
    return bool(select.select([connection], [], [], seconds)[0])
