import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import event, make_url, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from datalens_service.base.errors import InvalidInput, StoreUnavailable
from datalens_service.store import database as store
from datalens_service.store.access import access_log
from datalens_service.store.database import TRIGGERS, Database
from datalens_service.store.schema.tables import DEFAULT_TENANT, InstallationRow

from .books import by_hand, new_dataset, running_job, state_of, without_guards

pytestmark = pytest.mark.both_databases


def test_migrating_twice_keeps_the_installation_key(database: Database) -> None:
    before = _installation_key(database)
    database.migrate()
    assert _installation_key(database) == before
    assert len(before) == 32


def test_processes_that_start_together_migrate_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/fresh.db"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: Database(url).migrate(), range(4)))
    Database(url).check()


def test_the_check_knows_every_trigger(database: Database) -> None:
    for trigger in sorted(TRIGGERS):
        table = trigger.rpartition("_no_")[0]
        on = f" ON {table}" if database.dialect == "postgresql" else ""
        by_hand(database, f"DROP TRIGGER {trigger}{on}")
        with pytest.raises(StoreUnavailable, match="trigger"):
            database.check()


@pytest.mark.postgres
@pytest.mark.parametrize("value", ["off", "local", "remote_write"])
def test_the_check_refuses_postgresql_that_forgets_commits(postgresql_database: Database, value: str) -> None:
    name = make_url(postgresql_database.url).database
    by_hand(postgresql_database, f"ALTER DATABASE {name} SET synchronous_commit = {value}")
    postgresql_database.dispose()
    with pytest.raises(StoreUnavailable, match=f"synchronous_commit is '{value}'"):
        postgresql_database.check()


@pytest.mark.postgres
def test_the_check_refuses_disabled_triggers(postgresql_database: Database) -> None:
    without_guards(postgresql_database, "ledger_entries")
    with pytest.raises(StoreUnavailable, match="trigger ledger_entries_no_delete"):
        postgresql_database.check()


@pytest.mark.parametrize("pragma", ["synchronous=NORMAL", "foreign_keys=OFF"])
def test_the_check_refuses_sqlite_that_forgets_commits(sqlite_database: Database, pragma: str) -> None:
    event.listen(sqlite_database._engine, "connect", lambda raw, _record: raw.execute(f"PRAGMA {pragma}"))
    sqlite_database.dispose()
    with pytest.raises(StoreUnavailable, match=pragma.partition("=")[0]):
        sqlite_database.check()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://localhost/x"])
def test_databases_that_cannot_keep_a_ledger_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="DATALENS_DATABASE_URL"):
        Database(url)


def test_plain_postgresql_urls_get_the_driver_that_is_installed() -> None:
    assert Database("postgresql://nowhere/x").dialect == "postgresql"


def test_a_server_that_does_not_answer_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable), Database(f"postgresql://postgres@/x?host={tmp_path}").session() as session:
        session.execute(text("SELECT 1"))


@pytest.mark.postgres
def test_a_process_that_was_frozen_too_long_in_a_transaction_is_told_so(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has ended its session and undone what it did; the process can go on later."""
    dataset = new_dataset(postgresql_database)
    monkeypatch.setattr(store, "_POSTGRESQL_OPTIONS", "-c idle_in_transaction_session_timeout=500ms")
    frozen = Database(postgresql_database.url)

    def is_alive(backend: int) -> bool:
        query = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
        with postgresql_database.session() as session:
            return bool(session.scalar(query, {"pid": backend}))

    def spend_and_freeze() -> None:
        with frozen.transaction() as session:
            backend = session.scalar(text("UPDATE accounts SET charged_units = 7 RETURNING pg_backend_pid()"))
            while is_alive(backend):
                time.sleep(0.05)

    with pytest.raises(StoreUnavailable, match="was lost") as error:
        spend_and_freeze()
    assert error.value.__cause__.orig.sqlstate == "25P03"
    assert state_of(postgresql_database, dataset.id).charged_units == 0
    frozen.dispose()


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["session", "transaction"])
@pytest.mark.parametrize("later_statements", [0, 1])
def test_a_connection_that_breaks_is_a_named_error(
    postgresql_database: Database, kind: str, later_statements: int
) -> None:
    """While a statement is sent, or at the end."""
    backend = text("SELECT pg_backend_pid()")

    def work() -> None:
        with getattr(postgresql_database, kind)() as session:
            by_hand(postgresql_database, "SELECT pg_terminate_backend(:pid, 5000)", pid=session.scalar(backend))
            for _ in range(later_statements):
                session.execute(backend)

    with pytest.raises(StoreUnavailable, match="was lost"):
        work()
    with postgresql_database.transaction() as session:
        assert session.scalar(backend)


def test_an_exception_undoes_the_whole_transaction(database: Database) -> None:
    dataset = new_dataset(database)

    def spend_and_fail() -> None:
        with database.transaction() as session:
            session.execute(text("UPDATE accounts SET charged_units = 7"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        spend_and_fail()
    assert state_of(database, dataset.id).charged_units == 0


def test_a_reading_session_cannot_write(database: Database) -> None:
    dataset = new_dataset(database)
    with database.session() as session, pytest.raises(DBAPIError):
        session.execute(text("UPDATE accounts SET charged_units = 7"))
    assert state_of(database, dataset.id).charged_units == 0


def test_a_reading_session_sees_one_moment(database: Database, reopen: Callable[[], Database]) -> None:
    dataset = new_dataset(database)
    count = text("SELECT count(*) FROM datasets")
    with database.session() as session:
        before = session.scalar(count)
        new_dataset(reopen())
        assert session.scalar(count) == before
    assert dataset


def test_the_database_itself_refuses_to_forget(database: Database) -> None:
    _with_one_of_everything(database)
    for statement in [
        "UPDATE ledger_entries SET units = 0",
        "DELETE FROM ledger_entries",
        "DELETE FROM datasets",
        "DELETE FROM accounts",
        "DELETE FROM record_fingerprints",
        "UPDATE record_fingerprints SET account_id = account_id",
        "UPDATE aggregates SET step = 9",
        "UPDATE accounts SET charged_units = charged_units - 1",
        "UPDATE accounts SET head_seq = head_seq - 1",
        "UPDATE accounts SET reserved_units = limit_units - charged_units + 1",
        "UPDATE accounts SET limit_units = charged_units - 1",
        "UPDATE accounts SET reserved_units = -1",
        "UPDATE reservations SET reserved_units = -1",
        "UPDATE reservations SET charged_units = charged_units - 1",
        "UPDATE reservations SET owner_id = 'another'",
        "DELETE FROM reservations",
        "UPDATE datasets SET partition_key = NULL",
        "UPDATE accounts SET limit_units = limit_units - 1",
        "UPDATE accounts SET delta = delta * 2",
        "UPDATE audit_entries SET detail = ''",
        "DELETE FROM audit_entries",
        "UPDATE jobs SET priority = -1",
        "UPDATE jobs SET priority = 10",
    ]:
        with pytest.raises(IntegrityError):
            by_hand(database, statement)


@pytest.mark.postgres
def test_postgresql_refuses_to_truncate(postgresql_database: Database) -> None:
    for table in ["ledger_entries", "datasets", "accounts", "record_fingerprints", "reservations"]:
        with pytest.raises(IntegrityError):
            by_hand(postgresql_database, f"TRUNCATE {table} CASCADE")


def test_the_largest_account_neither_overflows_nor_overspends(database: Database) -> None:
    _with_one_of_everything(database)
    full = "UPDATE accounts SET limit_units = :largest, charged_units = :largest, reserved_units = 0"
    by_hand(database, full, largest=2**63 - 1)
    with pytest.raises(IntegrityError):
        by_hand(database, "UPDATE accounts SET reserved_units = 1")


def _with_one_of_everything(database: Database) -> None:
    _, _, account = running_job(database)
    account.charge(0, "votes", 10)
    account.store(0, np.arange(4, dtype=np.int64))
    access_log.note(database, DEFAULT_TENANT, actor="key_1", action="raiseBudget", object_id=None)


def _installation_key(database: Database) -> bytes:
    with database.session() as session:
        return session.scalars(select(InstallationRow)).one().fingerprint_key


def test_a_check_does_not_wait_for_whoever_writes(sqlite_database: Database) -> None:
    with sqlite_database.transaction() as session:
        session.execute(text("SELECT 1"))
        sqlite_database.check()


def test_a_server_that_does_not_answer_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = Database(f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/nothing")
        # Without a limit, this would wait for as long as the test may take.
        with pytest.raises(StoreUnavailable), database.session() as session:
            session.execute(text("SELECT 1"))
        database.dispose()
