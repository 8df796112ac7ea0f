"""Fork servers for tests: one process imports what jobs need, and every worker under test gets a fork of it.

To start a server of its own costs a worker twelve seconds of processor time.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from deployments.hold import Hold
from workers import fork_jobs
from workers.process.fork_server import WAITS_ASLEEP, ForkServer

VARIABLE = "TEST_FORK_SERVER"
"""Descriptor by which a worker under test reaches its server (`held/sitecustomize.py`)."""


def use(control: socket.socket) -> None:
    """In this process, the next server that is started is the one behind `control`."""
    start = ForkServer._start

    def adopt(server: ForkServer) -> None:
        ForkServer._start = start
        server._control = control
        # Stands for the process, which is not a child of this one.
        server._process = SimpleNamespace(poll=lambda: None, kill=lambda: None, wait=lambda: None)

    ForkServer._start = adopt


@functools.cache
def fork_server() -> ForkServer:
    """One for all jobs that tests of this process start without a worker."""
    use(new_server())
    server = ForkServer()
    while not server.ready():
        time.sleep(0.05)
    return server


def new_server() -> socket.socket:
    """Where one more fork is asked."""
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(_importer(), [b"\n"], [theirs.fileno()])
    return ours


@functools.cache
def _importer() -> socket.socket:
    ours, theirs = socket.socketpair()
    environment = WAITS_ASLEEP | os.environ | Hold(Path()).environment
    with theirs:
        subprocess.Popen([sys.executable, "-m", "deployments.fork_servers"], stdin=theirs, env=environment)
    return ours


def main() -> None:
    """Fork a server for each socket that is sent, until whoever sends them is gone."""
    fork_jobs.import_all()
    control = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            fork_jobs.serve(socket.socket(fileno=descriptors[0]))
        os.close(descriptors[0])


if __name__ == "__main__":
    main()
