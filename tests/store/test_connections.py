"""How many connections a process opens to PostgreSQL, and what happens when they are all in use."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.store import database as database_module
from datalens_service.store import patience
from datalens_service.store import postgresql as postgresql_module
from datalens_service.store.database import DEFAULT_CONNECTIONS, Database
from datalens_service.store.patience import impatient
from datalens_service.store.postgresql import DatabaseServer
from datalens_service.store.schema.tables import AccountRow
from deployments.postgresql import Cluster

from .books import new_dataset

THREADS_OF_THE_API = 40
PATIENCE = 120.0


def test_default_of_the_settings_is_that_of_the_store(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).database_connections == DEFAULT_CONNECTIONS


@pytest.mark.postgres
def test_all_threads_of_an_api_share_the_default_number_of_connections(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_POOL_SECONDS", PATIENCE)
    database = Database(postgresql_database.url)
    # Nobody gives a connection back before so many are in use at once.
    in_use = threading.Barrier(DEFAULT_CONNECTIONS)

    def look(_: int) -> int:
        with database.session() as session:
            session.execute(text("SELECT 1"))
            in_use.wait(PATIENCE)
            query = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND backend_type = 'client backend'"
            )
            return int(session.scalar(text(query)) or 0)

    with ThreadPoolExecutor(THREADS_OF_THE_API) as threads:
        seen = list(threads.map(look, range(5 * DEFAULT_CONNECTIONS)))
    database.dispose()
    # The other store of this test may hold one of its own.
    assert {DEFAULT_CONNECTIONS} <= set(seen) <= {DEFAULT_CONNECTIONS, DEFAULT_CONNECTIONS + 1}


@pytest.mark.postgres
def test_without_a_free_connection_the_service_is_unavailable_for_now(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_POOL_SECONDS", 0.05)
    database = Database(postgresql_database.url, connections=1)
    with database.session() as session:
        session.execute(text("SELECT 1"))
        with pytest.raises(StoreUnavailable, match="All connections"), database.transaction() as other:
            other.execute(text("SELECT 1"))
    with database.transaction() as session:
        session.execute(text("SELECT 1"))
    database.dispose()


def test_schema_is_migrated_without_folders_of_private_files(tmp_path: Path) -> None:
    variables = {"DATALENS_DATABASE_URL": f"sqlite:///{tmp_path}/store.db", "DATALENS_DATA_DIR": str(tmp_path / "none")}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-m", "datalens_service.migrations"], env={**os.environ, **variables})
        assert done.returncode == 0
    assert not (tmp_path / "none").exists()
    Database(variables["DATALENS_DATABASE_URL"]).check()


def test_migration_of_a_database_that_does_not_answer_fails(tmp_path: Path) -> None:
    variables = {"DATALENS_DATABASE_URL": f"sqlite:///{tmp_path}/nowhere/store.db"}
    done = subprocess.run(
        [sys.executable, "-m", "datalens_service.migrations"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.postgres
def test_the_impatient_leave_a_frozen_server_and_others_wait_for_it(
    postgresql_database: Database, postgresql: Cluster
) -> None:
    def ask() -> int:
        with postgresql_database.session() as session:
            return int(session.scalar(text("SELECT 1")) or 0)

    def ask_impatiently(_: int) -> None:
        with impatient(), pytest.raises(StoreUnavailable):
            ask()

    ask()
    with ThreadPoolExecutor(THREADS_OF_THE_API) as threads:
        with postgresql.frozen():
            patient = threads.submit(ask)
            # Also those who find no connection, and those who come when the silence is known.
            list(threads.map(ask_impatiently, range(2 * THREADS_OF_THE_API)))
            assert not patient.done()
        assert patient.result(PATIENCE) == 1
    _wait_until_answered(ask)


@pytest.mark.postgres
def test_the_impatient_wait_for_seconds_for_a_row_that_a_frozen_process_holds(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SECONDS", 1)
    dataset = new_dataset(postgresql_database)

    def lock() -> None:
        with postgresql_database.transaction() as session:
            session.get_one(AccountRow, dataset.account_id, with_for_update=True)

    with ThreadPoolExecutor(1) as threads:
        with postgresql_database.transaction() as frozen:
            frozen.get_one(AccountRow, dataset.account_id, with_for_update=True)
            patient = threads.submit(lock)
            with impatient(), pytest.raises(StoreUnavailable, match="holds the row"):
                lock()
            assert not patient.done()
        patient.result(PATIENCE)
    with impatient():
        lock()


@pytest.mark.postgres
def test_the_impatient_wait_for_seconds_for_a_table_that_somebody_changes_also_when_they_read(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SECONDS", 1)

    def read() -> int:
        with postgresql_database.session() as session:
            return len(session.scalars(select(AccountRow.id)).all())

    def look() -> int:
        with postgresql_database.connection() as connection:
            return len(connection.scalars(select(AccountRow.id)).all())

    other = Database(postgresql_database.url)
    with ThreadPoolExecutor(1) as threads:
        with other.transaction() as changing:
            changing.execute(text("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE"))
            patient = threads.submit(read)
            for ask in (read, look):
                with impatient(), pytest.raises(StoreUnavailable, match="row or table"):
                    ask()
            assert not patient.done()
        assert patient.result(PATIENCE) == 0
    with impatient():
        assert (read(), look()) == (0, 0)
    other.dispose()


@pytest.mark.postgres
def test_the_impatient_wait_for_seconds_for_a_connection(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    database = Database(postgresql_database.url, connections=1)
    with (
        database.session(),
        impatient(),
        pytest.raises(StoreUnavailable, match="All connections"),
        database.session() as other,
    ):
        other.execute(text("SELECT 1"))
    database.dispose()


@pytest.mark.parametrize("threads_of_the_api", [1, THREADS_OF_THE_API])
def test_the_impatient_wait_for_seconds_for_the_writer_of_sqlite_and_others_longer(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, threads_of_the_api: int
) -> None:
    """A process that is frozen within a transaction is a connection of its own here."""
    monkeypatch.setattr(patience, "SECONDS", 0.5)
    monkeypatch.setattr(database_module, "_BUSY_SECONDS", PATIENCE)
    api = Database(sqlite_database.url)

    def write() -> None:
        with sqlite_database.transaction() as session:
            session.execute(text("SELECT 1"))

    def ask(_: int) -> float:
        began = time.monotonic()
        with impatient(), pytest.raises(StoreUnavailable), api.transaction():
            raise AssertionError
        return time.monotonic() - began

    with ThreadPoolExecutor(1) as threads, ThreadPoolExecutor(threads_of_the_api) as requests:
        with Database(sqlite_database.url).transaction():
            patient = threads.submit(write)
            # All at once, and each as if it were alone.
            slowest = max(requests.map(ask, range(threads_of_the_api)))
            assert not patient.done()
        patient.result(PATIENCE)
    assert slowest < PATIENCE / 4
    with impatient(), api.transaction() as session:
        session.execute(text("SELECT 1"))
    api.dispose()


@pytest.mark.postgres
def test_the_impatient_wait_for_a_slow_statement(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []
    is_silent = DatabaseServer.is_silent

    def look(server: DatabaseServer, parameters: dict[str, Any]) -> bool:
        looks.append(is_silent(server, parameters))
        return looks[-1]

    monkeypatch.setattr(DatabaseServer, "is_silent", look)
    monkeypatch.setattr(postgresql_module, "_SILENCE_SECONDS", 0.2)
    with impatient(), postgresql_database.session() as session:
        session.execute(text("SELECT pg_sleep(1)"))
        assert session.scalar(text("SELECT 1")) == 1
    assert looks
    assert not any(looks)


def _wait_until_answered(ask: Callable[[], int]) -> None:
    deadline = time.monotonic() + PATIENCE
    with impatient():
        while True:
            try:
                assert ask() == 1
            except StoreUnavailable:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return
