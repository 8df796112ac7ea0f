"""What webhooks, uploads and the removal of what is old ask for is found by an index in both databases."""

import re
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from sqlalchemy import Connection, event

from datalens_service.store import removals
from datalens_service.store.access import browser_sessions, keys, tenants, webhooks
from datalens_service.store.database import Database
from datalens_service.store.datasets import artifacts, upload_sessions, uploads
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.jobs import jobs
from datalens_service.store.schema.tables import DEFAULT_TENANT

from .books import by_hand, new_dataset, new_job

pytestmark = pytest.mark.both_databases

DAY: Final = timedelta(days=1)
EXPLAIN: Final = {"sqlite": ["EXPLAIN QUERY PLAN "], "postgresql": ["SET LOCAL enable_seqscan = off", "EXPLAIN "]}
SCAN: Final = {"sqlite": re.compile(r"^SCAN (\w+)"), "postgresql": re.compile(r"Seq Scan on (\w+)")}
"""A few rows are read as they lie; PostgreSQL does it here only where no index serves."""

ONE_ROW: Final = {"installation"}


class House(NamedTuple):
    """A service with one of what is asked for."""

    database: Database
    key_id: str
    hook_id: str
    delivery_id: str
    upload_id: str
    dataset_id: str
    job_id: str


ASKED: Final[dict[str, Callable[[House], Any]]] = {
    "due messages": lambda house: webhooks.claim_due(house.database),
    "messages": lambda house: webhooks.list_deliveries(house.database, house.hook_id, limit=20),
    "older messages": lambda house: older_messages(house),
    "webhooks": lambda house: webhooks.list_webhooks(house.database, DEFAULT_TENANT),
    "an event": lambda house: jobs.request_cancel(house.database, house.job_id),
    "a message again": lambda house: webhooks.redeliver(house.database, house.hook_id, house.delivery_id),
    "end of a message": lambda house: webhooks.settle(house.database, house.delivery_id, status=204, error=None),
    "removal of a webhook": lambda house: webhooks.delete(house.database, house.hook_id),
    "an upload": lambda house: upload_sessions.get(house.database, house.upload_id),
    "owner of an upload": lambda house: check_owner(house),
    "a chunk": lambda house: upload_sessions.advance(house.database, house.upload_id, 5, DAY),
    "uploads to read": lambda house: uploads.in_state(house.database, DatasetState.VALIDATING),
    "expired uploads": lambda house: upload_sessions.remove_expired(house.database),
    "expired reviews": lambda house: uploads.in_state(house.database, DatasetState.REVIEW),
    "files of a deleted data set": lambda house: delete_files(house),
    "sessions of a key": lambda house: keys.revoke(house.database, house.key_id),
}
READ_AS_A_WHOLE: Final[dict[str, tuple[Callable[[House], Any], str]]] = {
    # Each of them is looked for on the disk.
    "unfinished uploads": (lambda house: upload_sessions.read_lengths(house.database), "uploads"),
    "files to be removed": (lambda house: removals.list_noted(house.database), "removals"),
    # No more than there were sign-ins in twelve hours.
    "expired sessions": (lambda house: browser_sessions.remove_expired(house.database), "browser_sessions"),
}


def older_messages(house: House) -> None:
    newest = webhooks.list_deliveries(house.database, house.hook_id, limit=1)
    assert newest.next_cursor is not None
    webhooks.list_deliveries(house.database, house.hook_id, limit=1, cursor=newest.next_cursor)


def check_owner(house: House) -> None:
    with house.database.connection() as connection:
        tenants.check_owned(connection, DEFAULT_TENANT, {"upload_id": house.upload_id})


def delete_files(house: House) -> None:
    with house.database.transaction() as session:
        artifacts.forget_private(session, house.dataset_id)
    ArtifactStore(house.database, Path("nowhere")).remove_files(house.job_id)


@pytest.fixture
def house(database: Database) -> House:
    key, _ = keys.create(database, "owner")
    hook, _ = webhooks.create(database, DEFAULT_TENANT, "https://example.org/hook", ["job.cancelled"])
    delivery, _ = webhooks.send_test(database, hook.id), webhooks.send_test(database, hook.id)
    upload = upload_sessions.create(database, key.id, 10, DAY)
    dataset = new_dataset(database)
    job = new_job(database, dataset.id, 10)
    return House(database, key.id, hook.id, delivery.id, upload.id, dataset.id, job.id)


def find_scans(house: House, ask: Callable[[House], Any]) -> tuple[int, set[str]]:
    """How many statements `ask` makes that look for rows, and the tables that they read from end to end."""
    plans: list[str] = []
    dialect, statements = house.database.dialect, 0

    def explain(connection: Connection, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        nonlocal statements
        if not statement.startswith(("SELECT", "UPDATE", "DELETE")):
            return
        statements += 1
        *before, prefix = EXPLAIN[dialect]
        with closing(connection.connection.cursor()) as cursor:
            for one in before:
                cursor.execute(one)
            cursor.execute(prefix + statement, parameters)
            plans.extend(row[-1] for row in cursor.fetchall())

    engines = {house.database._engine, house.database._reader} if dialect == "sqlite" else {house.database._engine}
    for engine in engines:
        event.listen(engine, "before_cursor_execute", explain)
    ask(house)
    for engine in engines:
        event.remove(engine, "before_cursor_execute", explain)
    return statements, {found[1] for plan in plans if (found := SCAN[dialect].search(plan))} - ONE_ROW


@pytest.mark.parametrize("asked", ASKED)
def test_rows_are_found_by_an_index(house: House, asked: str) -> None:
    statements, scanned = find_scans(house, ASKED[asked])
    assert statements > 0
    assert scanned == set()


@pytest.mark.parametrize("asked", READ_AS_A_WHOLE)
def test_few_tables_are_read_as_a_whole(house: House, asked: str) -> None:
    ask, table = READ_AS_A_WHOLE[asked]
    assert find_scans(house, ask)[1] <= {table}


def test_a_lost_index_is_noticed(house: House) -> None:
    for asked, table, columns in (
        ("expired uploads", "uploads", "expires_at"),
        ("due messages", "webhook_deliveries", "state_next_attempt_at"),
    ):
        by_hand(house.database, f"DROP INDEX ix_{table}_{columns}")
        # SQLite explains by the tables that a connection knows.
        house.database.dispose()
        assert find_scans(house, ASKED[asked])[1] == {table}
