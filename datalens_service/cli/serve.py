"""`datalens serve`: the whole service on one machine, API and supervisor in one process tree."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from datalens_service.cli import options, output
from datalens_service.cli.exits import ExitCode
from datalens_service.cli.numbers import integer_from
from datalens_service.cli.service import KEY_FILE
from datalens_service.cli.settings import service_settings
from datalens_service.errors import InvalidInput

if TYPE_CHECKING:
    import uvicorn

    from datalens_service.settings import Settings

_STOP_SECONDS: Final = 60.0
"""Longer than the supervisor waits for a job to give itself back."""

_BACKLOG: Final = 2048


def serve(
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on; left out, DATALENS_HOST or 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            parser=integer_from(1, 65535),
            help="Port to listen on; left out, DATALENS_PORT or 8000.",
        ),
    ] = None,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Run the service until Ctrl-C: REST API, and unless Celery is set, the supervisor that runs jobs.

    The first start makes an API key, prints it once, and leaves it in the data folder for commands on this machine.
    Everything else is set by environment variables DATALENS_…, see docs/operations.md. Logs go to stderr.
    """
    settings = service_settings(data_dir, host, port)
    with _listening(settings) as listener:
        key = _first_key(settings)
        place = _described(settings, key)
        server = _server(settings, lambda: output.show(place, output.facts(_lines(place)), as_json=as_json))
        with _supervised(settings, server) as supervisor:
            _run(server, listener)
    if not server.started or (supervisor is not None and supervisor.died):
        raise typer.Exit(ExitCode.UNREACHABLE)


@contextmanager
def _listening(settings: Settings) -> Generator[socket.socket]:
    """The port, taken before anything is started or written."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            raise InvalidInput(
                f"Cannot listen on {settings.host}:{settings.port} ({error.strerror}): choose another --port or --host."
            ) from error
        listener.listen(_BACKLOG)
        yield listener


def _first_key(settings: Settings) -> str | None:
    """Migrate and audit the database; if there is no usable key yet, make one and keep it beside the records."""
    from datalens_service.services.startup import start
    from datalens_service.store.access import keys

    database = start(settings)
    try:
        if keys.any_key(database):
            return None
        _, plain = keys.create(database, "first")
        _write_secret(settings.data_dir / KEY_FILE, plain)
        return plain
    finally:
        database.dispose()


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")


def _described(settings: Settings, key: str | None) -> dict[str, Any]:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{settings.port}"
    return {
        "url": url,
        "docs": f"{url}/docs",
        "data_dir": str(settings.data_dir.absolute()),
        "executor": settings.executor,
        "api_key": key,
        "api_key_file": str(settings.data_dir.absolute() / KEY_FILE),
    }


def _lines(place: dict[str, Any]) -> dict[str, object]:
    lines: dict[str, object] = {
        "DataLens Service": place["url"],
        "API description": place["docs"],
        "data": place["data_dir"],
        "jobs run by": "this process tree" if place["executor"] == "local" else "Celery workers",
    }
    if place["api_key"] is not None:
        lines["API key"] = place["api_key"]
        lines["shown once, also in"] = place["api_key_file"]
    return lines


def _server(settings: Settings, announce: Callable[[], None]) -> uvicorn.Server:
    import uvicorn

    from api.main import create_app

    application = create_app(settings)

    class Server(uvicorn.Server):
        """Says where it is once it answers."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                announce()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Streams of events would keep their connections open for hours."""
            application.state.stopping.set()
            await super().shutdown(sockets)

    # The application logs requests itself, and gives what uvicorn says the same form.
    config = uvicorn.Config(application, log_config=None, log_level="warning", access_log=False, server_header=False)
    return Server(config)


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    # uvicorn raises the signal that stopped it again when it is done; stopping is not an error here.
    previous = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _supervised(settings: Settings, server: uvicorn.Server) -> Generator[_Supervisor | None]:
    """The supervisor beside the API; none where Celery workers run the jobs."""
    if settings.executor != "local":
        yield None
        return
    supervisor = _Supervisor(settings, server)
    try:
        yield supervisor
    finally:
        supervisor.stop()


class _Supervisor:
    """`python -m workers.process.supervisor` as a child; if it dies, the API stops, too, instead of collecting jobs."""

    def __init__(self, settings: Settings, server: uvicorn.Server) -> None:
        self.died = False
        self._server = server
        self._stopping = False
        # A session of its own: Ctrl-C reaches this process only, which ends the API first.
        self._child = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-P", "-m", "workers.process.supervisor", "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "DATALENS_DATA_DIR": str(settings.data_dir.absolute())},
            start_new_session=True,
        )
        threading.Thread(target=self._watch, name="watch-supervisor", daemon=True).start()

    def stop(self) -> None:
        """End it; running jobs go back to the queue. A second Ctrl-C ends it at once."""
        self._stopping = True
        self._child.terminate()
        try:
            self._child.wait(_STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._child.kill()
            self._child.wait()

    def _watch(self) -> None:
        code = self._child.wait()
        if not self._stopping:
            self.died = True
            output.say(f"The supervisor ended with status {code}; the service stops.")
            self._server.should_exit = True
