"""The fork server: `python -P -m datalens_service.workers.fork_jobs`, started by `process/fork_server.py`.

It imports what a job needs, which takes seconds, and then forks a process for each job, which takes milliseconds. It
has one thread of Python, no record, no database and no GPU, so a forked process begins as one that was started anew.
"""

import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn

import numpy as np

from datalens_service.workers.process.fork_server import HAS_GPU, INTEGER

_IMPORTS: Final = (
    "datalens_service.workers.run_job",
    "datalens_service.methods.voting.training_run",
    "dp_accounting.pld.privacy_loss_distribution",
    # The first optimizer of a process imports it.
    "torch._dynamo",
)
_ASKS_TO_END: Final = (signal.SIGINT, signal.SIGTERM)


class ForkRequest(NamedTuple):
    """Inherited input of a forked process: descriptors, of which the first one leads to its worker."""

    connection: int
    output: int
    errors: int

    def become_job(self) -> list[str]:
        """Take a session, variables and streams of its own, and seeds that no other process has; the arguments."""
        os.setsid()
        with open(self.connection, "rb", closefd=False) as lines:
            arguments, environment = json.loads(lines.readline())
        # The connection stays open: its end tells the worker of the end of this process, if the server cannot.
        for descriptor, stream in ((os.open(os.devnull, os.O_RDONLY), 0), (self.output, 1), (self.errors, 2)):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        np.random.seed()
        tempfile.tempdir = None
        sys.argv[1:] = arguments
        return [str(argument) for argument in arguments]


class JobForker:
    """Forks when it is asked, and tells how each process ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._connections: dict[int, socket.socket] = {}
        self._ended, self._wakeup = socket.socketpair()

    def serve(self) -> ForkRequest | None:
        """Return once the worker is gone; in each forked process, return its request."""
        for number in _ASKS_TO_END:
            signal.signal(number, signal.SIG_IGN)
        self._wakeup.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        # A worker that was killed may leave an answer unread.
        with suppress(ConnectionError):
            self._control.sendall(HAS_GPU if _finds_gpu() else b"\n")
            while True:
                readable, _, _ = select.select([self._control, self._ended], [], [])
                if self._ended in readable:
                    self._ended.recv(1024)
                    self._collect()
                if self._control in readable:
                    message, descriptors, _, _ = socket.recv_fds(self._control, 1, len(ForkRequest._fields))
                    if not message:
                        return None
                    request = ForkRequest(*descriptors)
                    if self._fork(request):
                        return request
        return None

    def _fork(self, request: ForkRequest) -> bool:
        pid = os.fork()
        if pid == 0:
            self._forget()
            return True
        os.close(request.output)
        os.close(request.errors)
        self._connections[pid] = socket.socket(fileno=request.connection)
        self._tell(pid, pid)
        return False

    def _forget(self) -> None:
        """Leave nothing of the server in a forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for connection in (self._control, self._ended, self._wakeup, *self._connections.values()):
            connection.close()

    def _collect(self) -> None:
        while self._connections:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._tell(pid, os.waitstatus_to_exitcode(status))
            self._connections.pop(pid).close()

    def _tell(self, pid: int, number: int) -> None:
        with suppress(OSError):
            self._connections[pid].sendall(INTEGER.pack(number))


def serve(control: socket.socket) -> NoReturn:
    """Serve until the worker is gone; in a forked process, do its job."""
    request = JobForker(control).serve()
    code = 0 if request is None else _run(request)
    sys.stderr.flush()
    # To take apart all that was imported takes two seconds, and a forked process would copy it first.
    os._exit(code)


def _finds_gpu() -> bool:
    """Return True if torch would find a GPU; NVML tells so without loading a driver into this process."""
    import torch

    return torch.cuda.is_available()


def import_all() -> None:
    for name in _IMPORTS:
        importlib.import_module(name)


def _run(request: ForkRequest) -> int:
    from datalens_service.workers.run_job import main as run_job

    return run_job(request.become_job())


if __name__ == "__main__":
    import_all()
    serve(socket.socket(fileno=os.dup(sys.stdin.fileno())))
