"""Fork servers for tests: one process imports what jobs need, and every worker of a test run gets a fork of it.

To start a server of its own costs a worker twelve seconds of processor time.
"""

import functools
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

from deployments.hold import HOOK_PATH, Hold
from workers import fork_jobs
from workers.process.fork_server import WAITS_ASLEEP, ForkServer

VARIABLE = "TEST_FORK_SERVER"
"""Path of the socket at which a worker under test asks for its server (`held/sitecustomize.py`)."""


def use(path: str) -> None:
    """In this process, servers are those behind the socket."""

    def adopt(server: ForkServer) -> None:
        control = socket.socket(socket.AF_UNIX)
        control.connect(path)

        def poll() -> int | None:
            readable, _, _ = select.select([control], [], [], 0)
            return 1 if readable and not control.recv(1, socket.MSG_PEEK) else None

        server._control = control
        # Stands for the process, which is not a child of this one.
        server._process = SimpleNamespace(poll=poll, kill=lambda: None, wait=lambda: None)

    ForkServer._start = adopt


@functools.cache
def fork_server() -> ForkServer:
    """One for all jobs that tests of this process start without a worker."""
    start = ForkServer._start
    use(_socket_path())
    server = ForkServer()
    while not server.ready():
        time.sleep(0.05)
    ForkServer._start = start
    return server


def warm_environment() -> dict[str, str]:
    """Of a worker, or of a service that starts one, whose fork server has imported everything already."""
    return {VARIABLE: _socket_path(), "PYTHONPATH": HOOK_PATH}


@functools.cache
def _socket_path() -> str:
    """Where the importer listens: one for all processes of a test run, started by the first that asks for it."""
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    folder = Path(tempfile.gettempdir(), f"dlfork-{run}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder / "binding"))
            listening.listen()
            environment = WAITS_ASLEEP | os.environ | Hold(Path()).environment
            command = [sys.executable, "-m", "deployments.fork_servers", str(run), str(folder)]
            subprocess.Popen(command, stdin=listening, env=environment, start_new_session=True)
        (folder / "binding").rename(folder / "socket")
    while not (folder / "socket").exists():
        time.sleep(0.01)
    return str(folder / "socket")


def main(run: int, folder: str) -> None:
    """Fork a server for each connection, until the test run is over."""
    listening = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    fork_jobs.import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listening.settimeout(1)
    while Path(f"/proc/{run}").exists():
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        with connection:
            if os.fork() == 0:
                listening.close()
                fork_jobs.serve(connection)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
