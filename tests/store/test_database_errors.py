"""What is said of a database that does not take an operation follows from the cause."""

import sqlite3
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event, text

from certificates import issue_certificate
from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.store import database as store
from datalens_service.store.database import Database
from deployments.pgbouncer import PgBouncer
from deployments.postgresql import TEMPLATE, Cluster, roomy_memory
from ports import free_port

WORD = "canary0password"
DOCUMENTED = Path(__file__).parents[2] / "docs" / "deploy.md"
TIMEOUTS = ("lock_timeout = '30s'", "idle_in_transaction_session_timeout = '60s'")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server with TLS that asks for passwords, and knows users of several kinds."""
    certificate = tmp_path_factory.mktemp("tls") / "server.pem"
    issue_certificate(certificate)
    with tempfile.TemporaryDirectory(prefix="dlpg", dir=roomy_memory()) as folder:
        cluster = Cluster(Path(folder), certificate)
        cluster.start()
        try:
            for name, limits in (("service", ""), ("crowded", "CONNECTION LIMIT 0"), ("reader", "")):
                cluster.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{WORD}' {limits}")
            cluster.execute("ALTER ROLE reader SET default_transaction_read_only = on")
            cluster.ask_for_passwords()
            yield cluster
        finally:
            cluster.stop()


def complaint(url: str, statement: str = "SELECT 1") -> str:
    """What is said of a statement that fails."""
    database = Database(Settings(database_url=url).url)
    try:
        with pytest.raises(StoreUnavailable) as refused, database.transaction() as session:
            session.execute(text(statement))
    finally:
        database.dispose()
    assert WORD not in refused.value.text
    return refused.value.text


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("user", "parameters", "said"),
    [
        ("service:wrong", "postgres", "refuses the user or the password"),
        ("service", "postgres", "refuses the user or the password"),
        (f"nobody:{WORD}", "postgres", "refuses the user or the password"),
        (f"service:{WORD}", "nothing", "has no database of the name"),
        (f"crowded:{WORD}", "postgres", "no further connections"),
        (f"service:{WORD}", "postgres?sslmode=verify-full&sslrootcert=/etc/hostname", "certificate"),
        (f"service:{WORD}", "postgres?sslmode=verify-full&sslrootcert=/nowhere", "certificate"),
    ],
)
def test_a_refused_connection_says_why(guarded: Cluster, user: str, parameters: str, said: str) -> None:
    assert said in complaint(f"postgresql://{user}@127.0.0.1:{guarded.port}/{parameters}")


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("user", "statement", "said"),
    [
        ("reader", "CREATE TABLE x ()", "read-only"),
        ("service", "SELECT * FROM pg_authid", "may not use the tables"),
        ("service", "SELECT * FROM accounts", "another version"),
        ("service", "SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)", "gave the operation up"),
        ("service", "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '53100'; END $$", "disk of the database is full"),
        ("service", "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$", "changed the same rows"),
        ("service", "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = 'XX001'; END $$", "its own files"),
    ],
)
def test_a_refused_statement_says_why(guarded: Cluster, user: str, statement: str, said: str) -> None:
    url = f"postgresql://{user}:{WORD}@127.0.0.1:{guarded.port}/postgres"
    assert said in complaint(url, statement)


@pytest.mark.postgres
def test_a_mistake_of_the_program_is_no_fault_of_the_database(postgresql_database: Database) -> None:
    with pytest.raises(sqlalchemy.exc.ProgrammingError), postgresql_database.transaction() as session:
        session.execute(text("SELECT nonsense("))


def test_addresses_without_a_server_say_so(tmp_path: Path) -> None:
    assert "does not answer at the address" in complaint(f"postgresql://u@127.0.0.1:{free_port()}/x")
    assert "does not answer at the address" in complaint(f"postgresql://u@/x?host={tmp_path}")
    assert "has no address" in complaint("postgresql://u@nowhere.invalid/x")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (sqlite3.SQLITE_FULL, "disk of the database is full"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk of the database is full"),
        (sqlite3.SQLITE_IOERR_READ, "its own files"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "cannot be written"),
        (sqlite3.SQLITE_CANTOPEN, "cannot be opened"),
        (sqlite3.SQLITE_CORRUPT, "restore it from a backup"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "busy with other writes"),
    ],
)
def test_sqlite_says_why(sqlite_database: Database, code: int, said: str) -> None:
    def fail(*_: object) -> None:
        error = sqlite3.OperationalError("some words of SQLite")
        error.sqlite_errorcode = code
        raise error

    event.listen(sqlite_database._engine, "do_execute", fail)
    with pytest.raises(StoreUnavailable, match=said), sqlite_database.transaction() as session:
        session.execute(text("SELECT 1"))


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    assert "cannot be opened" in complaint(f"sqlite:///{tmp_path}/nowhere/x.db")


@pytest.mark.postgres
def test_the_check_refuses_a_standby_and_servers_without_timeouts(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql_database.url
    for options, said in (
        ("-c default_transaction_read_only=on", "read-only"),
        ("-c lock_timeout=9s", "idle_in_transaction_session_timeout is not in force"),
        ("-c idle_in_transaction_session_timeout=9s", "lock_timeout is not in force"),
        ("-c lock_timeout=9s -c idle_in_transaction_session_timeout=9s", ""),
    ):
        monkeypatch.setattr(store, "_POSTGRESQL_OPTIONS", options)
        database = Database(url)
        with ExitStack() as refused:
            if said:
                refused.enter_context(pytest.raises(StoreUnavailable, match=said))
            database.check()
        database.dispose()
    monkeypatch.setattr(store, "_OLDEST", (99,))
    with pytest.raises(StoreUnavailable, match="PostgreSQL 99 or later"):
        postgresql_database.check()


@pytest.mark.postgres
@pytest.mark.parametrize("ready", [False, True])
def test_pgbouncer_says_what_it_lacks_and_works_as_documented(postgresql: Cluster, ready: bool) -> None:
    url = postgresql.new_database(TEMPLATE)
    name = str(sqlalchemy.make_url(url).database)
    user = f"pooled_{name[-8:]}"
    postgresql.execute(f"CREATE ROLE {user} LOGIN SUPERUSER")
    for line in TIMEOUTS if ready else ():
        assert f"SET {line}" in DOCUMENTED.read_text()
        postgresql.execute(f"ALTER ROLE {user} SET {line}")
    pooler = PgBouncer(postgresql.folder, {user: WORD})
    pooler.serve()
    database = Database(pooler.url(name, user, WORD))
    try:
        if not ready:
            with pytest.raises(StoreUnavailable, match=r"lock_timeout is not in force.*ALTER ROLE"):
                database.check()
            return
        database.check()

        def ask(number: int) -> int:
            with database.session() as session:
                return int(session.scalar(text("SELECT :number + 0"), {"number": number}) or 0)

        # More often than the driver runs a statement before it prepares it, in sessions that change.
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(ask, range(1, 200))) == list(range(1, 200))
        assert {one.prepare_threshold for one in opened(database)} == {None}
    finally:
        database.dispose()
        pooler.kill()
        postgresql.execute(f"DROP DATABASE {name} WITH (FORCE)")
        postgresql.execute(f"DROP ROLE {user}")


def opened(database: Database) -> list[Any]:
    with database.connection() as connection:
        return [connection.connection.dbapi_connection]


@pytest.mark.postgres
def test_without_a_pooler_statements_are_prepared(postgresql_database: Database) -> None:
    assert opened(postgresql_database)[0].prepare_threshold is not None


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("pool_mode = transaction",), "ignore_startup_parameters"),
        (("ignore_startup_parameters = options", "max_client_conn = 0"), "no further connections"),
        (("ignore_startup_parameters = options", "client_tls_sslmode = disable"), "do not agree on TLS"),
    ],
)
def test_a_pgbouncer_that_refuses_says_why(postgresql: Cluster, settings: tuple[str, ...], said: str) -> None:
    pooler = PgBouncer(postgresql.folder, {"postgres": WORD}, settings)
    pooler.serve()
    try:
        wants_tls = "?sslmode=require" if "TLS" in said else ""
        assert said in complaint(pooler.url("postgres", "postgres", WORD) + wants_tls)
    finally:
        pooler.kill()


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("user", "name", "said"),
    [("postgres:wrong", "postgres", "refuses the user"), (f"postgres:{WORD}", "nothing", "no database of the name")],
)
def test_a_pgbouncer_that_takes_the_wrong_ones_says_why(postgresql: Cluster, user: str, name: str, said: str) -> None:
    pooler = PgBouncer(postgresql.folder, {"postgres": WORD})
    pooler.serve()
    try:
        assert said in complaint(f"postgresql://{user}@127.0.0.1:{pooler.port}/{name}")
    finally:
        pooler.kill()
