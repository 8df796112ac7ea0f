"""`datalens serve`: the whole service on one machine, API and supervisor in one process tree."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from datalens_service.base.errors import InvalidInput
from datalens_service.cli import options, output
from datalens_service.cli.failures import ExitCode
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.service import KEY_FILE, load_service_settings

if TYPE_CHECKING:
    from datalens_service.base.settings import Settings
    from datalens_service.cli.api_server import ApiServer

STOP_SECONDS: Final = 60.0
"""Longer than the supervisor waits for a job to give itself back."""

_BACKLOG: Final = 2048


def _parse_root_path(text: str) -> str:
    from datalens_service.base.settings import ROOT_PATH

    if not re.fullmatch(ROOT_PATH, text):
        raise typer.BadParameter("write it like /datalens or /lab/datalens, without a slash at the end.")
    return text


def serve(
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on; default: DATALENS_HOST or 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", parser=build_integer_parser(1, 65535), help="Port to listen on; default: DATALENS_PORT or 8000."
        ),
    ] = None,
    root_path: Annotated[
        str | None,
        typer.Option(
            "--root-path",
            parser=_parse_root_path,
            metavar="PATH",
            help="Path prefix under which a reverse proxy shows the service, for example /datalens; default: "
            "DATALENS_ROOT_PATH or none.",
        ),
    ] = None,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Run the service until Ctrl-C: REST API, and unless Celery is set, the supervisor that runs jobs.

    The first start makes an API key and leaves it in the data folder for commands on this machine. It is printed once,
    on a terminal or with --json, and never into a log.
    Everything else is set by environment variables DATALENS_…, see docs/operations.md. Logs go to stderr.
    """
    from datalens_service.cli.api_server import ApiServer

    settings = load_service_settings(data_dir, host, port, root_path)
    with _open_listener(settings) as listener:
        key = _create_first_key(settings)
        service = _describe_service(settings, key)
        facts = output.format_facts(_label_facts(service))
        server = ApiServer(settings, lambda: output.show(service, facts, as_json=as_json))
        with _run_supervisor(settings, server):
            _run(server, listener)
    if not server.started or server.failed:
        raise typer.Exit(ExitCode.UNREACHABLE)


@contextmanager
def _open_listener(settings: Settings) -> Generator[socket.socket]:
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


def _create_first_key(settings: Settings) -> str | None:
    """Migrate and check the database; if it has no usable key, create one and store it beside the records.

    What a service cannot start on is refused here, where a person reads it.
    """
    from datalens_service.adapters.startup import prepare
    from datalens_service.store.access import keys
    from datalens_service.store.ledger.recovery import begin_check

    database = prepare(settings)
    try:
        begin_check(database)
        return keys.create_first(database, "first", lambda secret: _write_secret(settings.data_dir / KEY_FILE, secret))
    finally:
        database.dispose()


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")


def _describe_service(settings: Settings, key: str | None) -> dict[str, Any]:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{settings.port}{settings.root_path}"
    return {
        "url": url,
        "docs": f"{url}/docs",
        "data_dir": str(settings.data_dir.absolute()),
        "executor": settings.executor,
        "contact": settings.contact,
        "api_key": key,
        "api_key_file": str(settings.data_dir.absolute() / KEY_FILE),
    }


def _label_facts(service: dict[str, Any]) -> dict[str, object]:
    lines: dict[str, object] = {
        "DataLens Service": service["url"],
        "API description": service["docs"],
        "data": service["data_dir"],
        "jobs run by": "this process tree" if service["executor"] == "local" else "Celery workers",
        "contact in reports": service["contact"] or "nobody yet: name one with DATALENS_CONTACT",
    }
    if service["api_key"] is not None:
        # Output that is not a terminal is collected as a log, and kept.
        if sys.stdout.isatty():
            lines["API key, shown once"] = service["api_key"]
        lines["API key in"] = service["api_key_file"]
    return lines


def _run(server: ApiServer, listener: socket.socket) -> None:
    # uvicorn raises the signal that stopped it again when it is done, and one may come before it listens to any.
    previous = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _run_supervisor(settings: Settings, server: ApiServer) -> Generator[None]:
    """The supervisor beside the API; none where Celery workers run the jobs."""
    if settings.executor != "local":
        yield
        return
    supervisor = _Supervisor(settings, server)
    try:
        yield
    finally:
        supervisor.stop()


class _Supervisor:
    """`workers.process.supervisor` as a child; if it dies, the API stops, too, instead of collecting jobs."""

    def __init__(self, settings: Settings, server: ApiServer) -> None:
        self._server = server
        self._stopping = False
        # A session of its own: Ctrl-C reaches this process only, which passes it on.
        self._child = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-P", "-m", "datalens_service.workers.process.supervisor", "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "DATALENS_DATA_DIR": str(settings.data_dir.absolute())},
            start_new_session=True,
        )
        server.on_signal, server.on_overdue = self.ask_to_end, self.stop
        threading.Thread(target=self._watch, name="watch-supervisor", daemon=True).start()

    def ask_to_end(self) -> None:
        """Have running jobs go back to the queue; returns at once."""
        if not self._stopping:
            self._stopping = True
            self._child.terminate()

    def stop(self) -> None:
        """End it, once running jobs are back in the queue. A further Ctrl-C ends it at once."""
        self.ask_to_end()
        try:
            self._child.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._child.kill()
            self._child.wait()

    def _watch(self) -> None:
        code = self._child.wait()
        if not self._stopping:
            output.say(f"The supervisor ended with status {code}; the service stops.")
            self._server.fail()
