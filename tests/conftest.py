"""Databases for tests: an SQLite file always, a private PostgreSQL cluster where its binaries are installed.

DATALENS_REQUIRE_SERVICES makes tests fail whose server is not installed; without it they are skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest
import sqlalchemy

from datalens_service.store.database import Database
from datalens_service.store.mirror import LedgerLog

TEMPLATE = "datalens_template"


class Cluster:
    """A PostgreSQL server of our own in a temporary folder, reached through a Unix socket only."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._data = folder / "data"
        # The server refuses to run as root.
        self._as_postgres = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._as_postgres:
            shutil.chown(self._folder, "postgres", "postgres")
        options = ["-D", str(self._data), "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]
        subprocess.run(self._command("initdb", *options), check=True, cwd=self._folder, stdout=subprocess.DEVNULL)
        options = [
            "-D",
            str(self._data),
            "-k",
            str(self._folder),
            "-c",
            "listen_addresses=",
            "-c",
            "max_connections=200",
        ]
        with (self._folder / "log").open("wb") as log:
            self._server = subprocess.Popen(
                self._command("postgres", *options), cwd=self._folder, stderr=log, stdout=log
            )
        self._wait_until_ready()

    def stop(self) -> None:
        assert self._server is not None
        # SIGQUIT: at once; nobody needs the data.
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait()

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://postgres@/{name}?host={self._folder}"

    def new_database(self, template: str | None = None) -> str:
        name = f"test_{uuid4().hex}" if template else TEMPLATE
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template or 'template0'}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        engine = sqlalchemy.create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()

    def _command(self, program: str, *arguments: str) -> list[str]:
        # The server ends with this process, however this process ends.
        prefix = ["setpriv", *self._as_postgres, "--pdeathsig", "QUIT"]
        return [*prefix, str(self._binaries / program), *arguments]

    def _wait_until_ready(self) -> None:
        engine = sqlalchemy.create_engine(self.url("postgres"))
        deadline = time.monotonic() + 60
        while True:
            try:
                engine.connect().close()
                break
            except sqlalchemy.exc.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        engine.dispose()


def _postgresql_binaries() -> Path | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = shutil.which("initdb")
    return versions[-1].parent if versions else Path(found).parent if found else None


def _roomy_memory() -> Path | None:
    """A memory file system: the cluster syncs every commit, which a shared disk makes slow."""
    memory = Path("/dev/shm")  # noqa: S108
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2**30 else None


@pytest.fixture(scope="session")
def do_without() -> Callable[[str], NoReturn]:
    """Ends a test whose server is not there, for the reason given."""

    def end(reason: str) -> NoReturn:
        if os.environ.get("DATALENS_REQUIRE_SERVICES"):
            pytest.fail(f"{reason}, and DATALENS_REQUIRE_SERVICES is set")
        pytest.skip(reason)

    return end


@pytest.fixture(scope="session")
def postgresql(do_without: Callable[[str], NoReturn]) -> Iterator[Cluster]:
    binaries = _postgresql_binaries()
    if binaries is None:
        do_without("PostgreSQL is not installed (no initdb in /usr/lib/postgresql/*/bin or on the PATH)")
    # Not pytest's folder: the path of a Unix socket must stay below 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="dlpg", dir=_roomy_memory()))
    cluster = Cluster(binaries, folder)
    cluster.start()
    try:
        template = Database(cluster.new_database())
        template.migrate()
        template.dispose()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "datalens.db"
    database = Database(f"sqlite:///{path}")
    database.migrate()
    database.dispose()
    return path


@pytest.fixture
def store_path() -> Iterator[Path]:
    """A folder for databases and logs, in memory where there is room."""
    with tempfile.TemporaryDirectory(prefix="dlstore", dir=_roomy_memory()) as folder:
        yield Path(folder)


@pytest.fixture
def sqlite_database(sqlite_template: Path, store_path: Path) -> Iterator[Database]:
    """A migrated SQLite database with a ledger log."""
    shutil.copy(sqlite_template, store_path)
    yield from _opened(f"sqlite:///{store_path / 'datalens.db'}", store_path)


@pytest.fixture
def postgresql_database(postgresql: Cluster, store_path: Path) -> Iterator[Database]:
    """A migrated PostgreSQL database with a ledger log."""
    url = postgresql.new_database(TEMPLATE)
    yield from _opened(url, store_path)
    postgresql.execute(f"DROP DATABASE {sqlalchemy.make_url(url).database} WITH (FORCE)")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> Database:
    """The same test on both databases."""
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


@pytest.fixture
def reopen(database: Database) -> Generator[Callable[[], Database]]:
    """Further connections to the same database, as another process would have."""
    opened: list[Database] = []

    def open_again() -> Database:
        opened.append(Database(database.url, database.log))
        return opened[-1]

    yield open_again
    for other in opened:
        other.dispose()


def _opened(url: str, folder: Path) -> Iterator[Database]:
    database = Database(url, LedgerLog(folder / "ledger.log"))
    yield database
    database.dispose()
