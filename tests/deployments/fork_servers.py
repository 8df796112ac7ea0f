"""Fork servers for tests: one process imports what jobs and commands need, and every worker of a test run gets a fork.

To start a server of its own costs a worker twelve seconds of processor time.
"""

import functools
import gc
import hashlib
import importlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

from datalens_service.workers import fork_jobs
from datalens_service.workers.process.fork_server import WAITS_ASLEEP, ForkServer
from deployments.forked_programs import VARIABLE, ForkedProgram, read_mask, receive_streams, serve_program
from deployments.hold import HOOK_PATH, Hold

_IMPORTS = (
    "datalens_service.api.application",
    "datalens_service.cli.app",
    "datalens_service.jobs.embedded_run",
    "httpcore2",
    # pyarrow looks for it when the first table is written.
    "pandas",
    "uvicorn.lifespan.on",
    "datalens_service.workers.process.supervisor",
)


_RECOMPUTE = ("datalens_service.jobs.build_report", "datalens_service.proof.proof_verification")


def use(path: str) -> None:
    """In this process, servers are those behind the socket."""

    def adopt(server: ForkServer) -> None:
        control = socket.socket(socket.AF_UNIX)
        control.connect(path)
        control.sendall(read_mask())

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


def start_program(
    program: Sequence[str], variables: Mapping[str, str], output: int, errors: int, folder: Path | None = None
) -> ForkedProgram:
    """Start a module or a script with arguments as a fork, without input."""
    with Path(os.devnull).open("rb") as nothing:
        return ForkedProgram(program, {**variables, **warm_environment()}, (nothing.fileno(), output, errors), folder)


@functools.cache
def _socket_path() -> str:
    """Where the importer listens: one for all processes of a test run, started by the first that asks for it."""
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    folder = Path(tempfile.gettempdir(), f"dlfork-{run}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        try:
            _start_importer(run, folder)
        except BaseException:
            # `--fast` refuses it; who asks next would wait for it.
            shutil.rmtree(folder)
            raise
    while not (folder / "socket").exists():
        time.sleep(0.01)
    return str(folder / "socket")


def _start_importer(run: int, folder: Path) -> None:
    environment = WAITS_ASLEEP | os.environ | Hold(Path()).environment
    command = [sys.executable, "-m", "deployments.fork_servers", str(run), str(folder)]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "binding"))
        listening.listen()
        subprocess.Popen(command, stdin=listening, env=environment, start_new_session=True)
    (folder / "binding").rename(folder / "socket")


def _composed_once(folder: Path, releases: Iterable[object], delta: float) -> float:
    """The second opinion on releases that jobs of a test run share, computed by the first of its forks."""
    from datalens_service.privacy.recomputation import composed_epsilon

    given = tuple(releases)
    kept = folder / hashlib.sha256(repr((given, delta)).encode()).hexdigest()
    with suppress(OSError):
        return float(kept.read_text())
    epsilon = composed_epsilon(given, delta)
    with suppress(OSError):
        written = kept.with_suffix(f".{os.getpid()}")
        written.write_text(repr(epsilon))
        written.replace(kept)
    return epsilon


def main(run: int, folder: str) -> None:
    """Fork a server for each connection, until the test run is over."""
    listening = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    fork_jobs.import_all()
    for name in _IMPORTS:
        importlib.import_module(name)
    for name in _RECOMPUTE:
        sys.modules[name].composed_epsilon = functools.partial(_composed_once, Path(folder))
    gc.freeze()
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
                if streams := receive_streams(connection):
                    serve_program(connection, streams)
                fork_jobs.serve(connection)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
