"""From every revision forward, with an installation in use on it: nothing that was spent or known is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import alembic.command
import numpy as np
import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

import migrations
from datalens_service.errors import StateConflict
from datalens_service.mechanisms.moments import VectorSum
from datalens_service.mechanisms.planned_release import PlannedRelease
from datalens_service.methods import Plan
from datalens_service.store.access import keys
from datalens_service.store.database import Database, _alembic_config
from datalens_service.store.datasets import validations
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.jobs import audits, jobs, leases, measurements
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.ledger.recovery import check_against_log
from datalens_service.store.tables import Base, ReservationRow

from .backups import remove
from .books import account_of, claimed, images, new_dataset, new_job, state_of, verified

pytestmark = pytest.mark.both_databases

REVISIONS = sorted(path.stem.split("_")[1] for path in Path(migrations.__file__).parent.glob("versions/rev_*.py"))

EARLIER = ("0001", "0006", "0014", "0017", *REVISIONS[-2:])
"""The first, those before a table was taken apart or others were made, and the last two."""

NewDatabase = Callable[[], Database]


@pytest.fixture
def empty(database: Database, tmp_path: Path) -> Iterator[NewDatabase]:
    """Makes databases without any table beside `database`, on the same server."""
    made: list[Database] = []

    def make() -> Database:
        name = f"old_{len(made)}_{tmp_path.name[-20:]}".lower().replace("-", "_")
        if database.dialect == "sqlite":
            made.append(Database(f"sqlite:///{tmp_path / name}.db", database.log))
        else:
            url = sa.make_url(database.url)
            server = sa.create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
            with server.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
            server.dispose()
            made.append(Database(url.set(database=name).render_as_string(hide_password=False), database.log))
        return made[-1]

    yield make
    for one in made:
        remove(one)


def upgrade(database: Database, revision: str) -> None:
    engine = sa.create_engine(database.url)
    with engine.begin() as connection:
        alembic.command.upgrade(_alembic_config(connection), revision)
    engine.dispose()


def copy_rows(source: Database, target: Database) -> None:
    """All rows, in the columns that the target has: what an older version would have written."""
    reading, writing = sa.create_engine(source.url), sa.create_engine(target.url)
    with reading.connect() as old, writing.begin() as new:
        there = sa.MetaData()
        there.reflect(new)
        for table in Base.metadata.sorted_tables:
            if table.name in there.tables:
                _copy_table(old, new, table, there.tables[table.name])
    reading.dispose()
    writing.dispose()


def _copy_table(old: Connection, new: Connection, table: sa.Table, reflected: sa.Table) -> None:
    names = {column.name: column.name for column in table.columns}
    if table.name == "jobs" and "price" not in reflected.columns:
        names |= {"price": "plan", "plan": "release_plan"}
    columns = [column for column in table.columns if names[column.name] in reflected.columns]
    # The types of the models: an older table has the same ones, under the names of the database.
    older = sa.table(table.name, *(sa.column(names[column.name], column.type) for column in columns))
    rows = [{names[name]: value for name, value in row._mapping.items()} for row in old.execute(sa.select(*columns))]
    if table.name == "jobs" and "reserved_units" in reflected.columns:
        older, rows = _with_reservations(old, older, rows)
    # Both have a row from the first moment on.
    if table.name in ("installation", "tenants"):
        new.execute(older.delete())
    if rows:
        new.execute(older.insert(), rows)


def _with_reservations(
    old: Connection, jobs_table: sa.TableClause, rows: list[dict[str, Any]]
) -> tuple[sa.TableClause, list[dict[str, Any]]]:
    """Jobs as they were when they had their reservation in columns."""
    reservations = Base.metadata.tables["reservations"].columns
    moved = [reservations[name] for name in ("reserved_units", "charged_units", "settled")]
    by_id = {row.id: dict(row._mapping) for row in old.execute(sa.select(reservations["id"], *moved))}
    columns = [sa.column(column.name, column.type) for column in (*jobs_table.columns, *moved)]
    return sa.table("jobs", *columns), [{**row, **by_id[row["id"]]} for row in rows]


def test_there_is_one_line_of_revisions(sqlite_database: Database) -> None:
    with sa.create_engine(sqlite_database.url).connect() as connection:
        script = ScriptDirectory.from_config(_alembic_config(connection))
    assert len(script.get_heads()) == 1
    assert sorted(revision.revision for revision in script.walk_revisions()) == REVISIONS


@pytest.mark.parametrize("revision", EARLIER)
def test_an_installation_of_an_earlier_revision_goes_on(database: Database, empty: NewDatabase, revision: str) -> None:
    dataset = new_dataset(database)
    ended, running, waiting = (new_job(database, dataset.id, 1000) for _ in range(3))
    first, lease = claimed(database, ended.id), claimed(database, running.id)
    spend(account_of(database, first), 7)
    leases.finish(database, first, JobState.CANCELLED)
    spend(account_of(database, lease), 11)
    before = state_of(database, dataset.id)

    moved = empty()
    upgrade(moved, revision)
    copy_rows(database, moved)
    moved.migrate()

    moved.check()
    assert check_against_log(moved) == ()
    assert state_of(moved, dataset.id) == before
    assert verified(moved, dataset.id).head_hash == before.head_hash
    # A worker of the older version goes on under its lease: a stored sum is replayed, a new step is charged.
    account = account_of(moved, lease)
    assert account.replay(0).tolist() == [0, 1, 2, 3]
    with pytest.raises(StateConflict):
        account.charge(0, "votes", 1)
    account.charge(1, "votes", 13)
    assert state_of(moved, dataset.id).charged_units == before.charged_units + 13
    assert jobs.get(moved, ended.id).state == JobState.CANCELLED
    assert leases.next_queued(moved, queue="cpu") == (waiting.id,)
    # The same records find their account again.
    assert new_dataset(moved, images(), epsilon=None, delta=None).account_id == dataset.account_id


def test_reservations_leave_the_table_of_jobs_with_their_owners(database: Database, empty: NewDatabase) -> None:
    dataset, aside = new_dataset(database), new_dataset(database, images(7))
    lease = claimed(database, new_job(database, dataset.id, 1000).id)
    spend(account_of(database, lease), 11)
    measurement = measurements.begin(database, jobs.get(database, lease.job_id), aside.id, 5, lease)
    spend(account_of(database, measurement), 5)
    leases.finish(database, measurement, JobState.SUCCEEDED)

    moved = empty()
    upgrade(moved, "0014")
    copy_rows(database, moved)
    moved.migrate()

    moved.check()
    assert check_against_log(moved) == ()
    with moved.session() as session:
        rows = session.scalars(sa.select(ReservationRow)).all()
    assert {(row.id, row.owner_kind, row.reserved_units, row.charged_units, row.settled) for row in rows} == {
        (lease.job_id, "job", 989, 11, False),
        (measurement.job_id, "measurement", 0, 5, True),
    }
    noisy = measurements.replay(moved, lease.job_id, aside.id)
    assert noisy is not None
    assert noisy.tolist() == [0, 1, 2, 3]


def test_jobs_keep_their_price_and_their_plan_and_say_what_they_make(database: Database, empty: NewDatabase) -> None:
    dataset = new_dataset(database)
    plan = Plan(releases=(PlannedRelease(mechanism=VectorSum(num_groups=1, dimensions=2, noise_stddev=5000)),))
    image_maker, labeller = (
        new_job(
            database, dataset.id, 1000, spec={"method": {"name": name}}, result=result, price={"units": 7}, plan=plan
        )
        for name, result in (("moments", "generator"), ("dp_sgd", "classifier"))
    )
    foreign = new_job(database, dataset.id, 1000, spec={"method": {"name": "elsewhere"}}, result="classifier")
    leases.mark_released(database, claimed(database, foreign.id), "classifier")
    audit = audits.create(database, dataset_id=dataset.id, request={"attacks": []}, max_attempts=3)

    moved = empty()
    upgrade(moved, "0023")
    copy_rows(database, moved)
    moved.migrate()

    moved.check()
    for job in (image_maker, labeller, foreign, audit.job):
        assert jobs.get(moved, job.id) == jobs.get(database, job.id)
        assert jobs.get_plan(moved, job.id) == jobs.get_plan(database, job.id)
    assert jobs.get_plan(moved, labeller.id) == plan
    assert state_of(moved, dataset.id) == state_of(database, dataset.id)
    assert verified(moved, dataset.id).head_hash == state_of(database, dataset.id).head_hash


def test_uploads_that_an_older_version_left_half_done_go_on(database: Database, empty: NewDatabase) -> None:
    """One was registered and not noted, one is still to be read and names its classes by the word of then."""
    key, dataset = keys.create(database, "laptop")[0], new_dataset(database)
    waiting = {"classes": ["cat", "dog"], "epsilon": 1.0}
    with database.transaction() as session:
        for dataset_id, form in ((dataset.id, {}), ("ds_waiting", waiting)):
            upload = validations.of_request(key.id, form)
            validations.settle(
                session, replace(upload, dataset_id=dataset_id), DatasetState.VALIDATING, None, upload.form
            )
    moved = empty()
    upgrade(moved, "0021")
    copy_rows(database, moved)
    moved.migrate()

    assert validations.get(moved, dataset.id).state is DatasetState.READY
    [left] = validations.in_state(moved, DatasetState.VALIDATING)
    assert (left.dataset_id, left.form) == ("ds_waiting", {"class_names": ["cat", "dog"], "epsilon": 1.0})
    with moved.transaction() as session:
        validations.settle(session, left, DatasetState.REVIEW, {}, left.form)


def spend(account: JobAccount, units: int) -> None:
    account.charge(0, "votes", units)
    account.store(0, np.arange(4, dtype=np.int64))
