"""Finds the service that a command talks to, or the database of one on this machine, and what an id or a name means."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import RenderableType

from datalens_service.base.errors import NotFound
from datalens_service.base.wording import Voice
from datalens_service.cli import options, output
from datalens_service.client import DEFAULT_URL, ClientError, is_loopback

if TYPE_CHECKING:
    from datalens_service.base.settings import Settings
    from datalens_service.client import Client
    from datalens_service.store.database import Database

KEY_FILE: Final = "api-key"
"""Name of the file in data_dir in which `datalens serve` leaves its first key, readable by its user only.

Whoever can read it can read the private records beside it, so it opens no further door.
"""

_JOB: Final = "job_"
_DATASET: Final = "ds_"
_MODELS: Final = ("gen_", "clf_", "mod_")
_REMOVED: Final = frozenset({"deleted", "invalid"})


@dataclass(frozen=True)
class Service:
    """The service that a command talks to, and how its answers are printed."""

    url: options.Url = DEFAULT_URL
    api_key: options.ApiKey = ""
    as_json: options.AsJson = False

    def connect(self) -> Client:
        """A client; without a key, that of this machine's service, whose file is offered to loopback only."""
        from datalens_service.client import Client

        key = self.api_key or (_key_from_file() if is_loopback(self.url) else "")
        return Client(self.url, key, voice=Voice.COMMAND_LINE)

    def show(self, data: output.Result, view: RenderableType) -> None:
        """Print a result: `data` as JSON for programs, or `view` for people."""
        output.show(data, view, as_json=self.as_json)


SERVICE: Final = Service()
"""Unless the command line says otherwise."""


def _key_from_file() -> str:
    path = Path(os.environ.get("DATALENS_DATA_DIR", options.DEFAULT_DATA_DIR)) / KEY_FILE
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def load_service_settings(
    data_dir: Path, host: str | None = None, port: int | None = None, root_path: str | None = None
) -> Settings:
    """The environment's settings, with what the command line says instead.

    Raises:
        InvalidInput: A variable or option is unusable.
    """
    from datalens_service.base.settings import Settings, convert_validation_errors

    with convert_validation_errors():
        environment = Settings()
        return Settings(
            data_dir=data_dir,
            host=host or environment.host,
            port=port or environment.port,
            root_path=environment.root_path if root_path is None else root_path,
        )


@contextmanager
def open_database(data_dir: Path) -> Generator[Database]:
    """The database of the service whose data folder is `data_dir`."""
    from datalens_service.adapters.startup import connect

    with _opened(data_dir, connect) as database:
        yield database


@contextmanager
def open_doubtful_database(data_dir: Path) -> Generator[Database]:
    """The same, also if the guards of its journals are gone: to be read alone."""
    from datalens_service.adapters.startup import connect_to_read

    with _opened(data_dir, connect_to_read) as database:
        yield database


@contextmanager
def _opened(data_dir: Path, connect: Callable[[Settings], Database]) -> Generator[Database]:
    settings = load_service_settings(data_dir)
    # A mistyped folder must not become an empty installation.
    if not settings.database_url and not (data_dir / "datalens.db").exists():
        raise NotFound(f"There is no database in {data_dir}: name the folder that `datalens serve` uses.")
    database = connect(settings)
    try:
        yield database
    finally:
        database.dispose()


class _Named(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...


def find_job(client: Client, named: str) -> str:
    """Id of the job that is named, or whose name this is.

    Raises:
        ClientError: No job has this name, or several have.
    """
    return named if named.startswith(_JOB) else _only("job", named, client.jobs())


def find_release(client: Client, named: str) -> str:
    """Id of the release that is named, or that this job made, or whose title this is.

    Raises:
        ClientError: There is none, or several have this title.
    """
    if named.startswith(_MODELS):
        return named
    meant = [one.id for one in client.releases() if named in (one.job_id, one.title)]
    return _single("release", named, meant)


def find_dataset(client: Client, named: str) -> str:
    """Id of the data set that is named, or whose name this is; a deleted one has its name if no other one has it.

    Raises:
        ClientError: No data set has this name, or several have.
    """
    if named.startswith(_DATASET):
        return named
    namesakes = [dataset for dataset in client.datasets() if dataset.name == named]
    usable = [dataset for dataset in namesakes if dataset.state not in _REMOVED]
    return _only("data set", named, usable or namesakes)


def _only(kind: str, name: str, items: Iterable[_Named]) -> str:
    return _single(kind, name, [item.id for item in items if item.name == name])


def _single(kind: str, name: str, ids: list[str]) -> str:
    if not ids:
        raise ClientError("not-found", "Not found", f"No {kind} has the id or the name {name!r}.", status=404)
    if len(ids) > 1:
        raise ClientError(
            "state-conflict", "The object's state forbids this",
            f"{len(ids)} of your {kind}s are called {name!r}: name one of {', '.join(ids)}.",
        )  # fmt: skip
    return ids[0]
