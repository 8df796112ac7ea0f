"""A database of version 1.0.0 goes on, with an installation in use on it: nothing of what was spent is forgotten."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.engine import Connection

from datalens_service.base.errors import StateConflict, StoreUnavailable
from datalens_service.mechanisms import PlannedRelease
from datalens_service.mechanisms.moments import VectorSum
from datalens_service.methods import Plan
from datalens_service.store.access import access_log, keys
from datalens_service.store.database import Database, _scripts
from datalens_service.store.datasets import uploads
from datalens_service.store.jobs import audits, jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.ledger.recovery import check_against_log
from datalens_service.store.schema.tables import Base, IntakeRow

from .backups import administrate, remove
from .books import (
    assert_totals_add_up,
    by_hand,
    claimed,
    images,
    new_dataset,
    new_job,
    read_account,
    state_of,
    verified,
)

pytestmark = pytest.mark.both_databases

VERSION_1 = Path(__file__).parent / "version_1_0_0"
"""Its schema, as its own migrations made it."""

Older = Callable[[], Database]


@pytest.fixture
def older(database: Database, tmp_path: Path) -> Iterator[Older]:
    """Makes a database of version 1.0.0 beside `database`, with all its rows."""
    made: list[Database] = []

    def make() -> Database:
        made.append(_empty(database, tmp_path))
        _run(made[-1], (VERSION_1 / f"{database.dialect}.sql").read_text())
        copy_rows(database, made[-1])
        return made[-1]

    yield make
    for one in made:
        remove(one)


def _empty(database: Database, folder: Path) -> Database:
    name = f"old_{folder.name[-20:]}".lower().replace("-", "_")
    if database.dialect == "sqlite":
        return Database(f"sqlite:///{folder / name}.db", database.log)
    administrate(database, f"CREATE DATABASE {name}")
    url = sa.make_url(database.url).set(database=name)
    return Database(url.render_as_string(hide_password=False), database.log)


def _run(database: Database, statements: str) -> None:
    url = sa.make_url(database.url)
    if url.database is not None and database.dialect == "sqlite":
        with closing(sqlite3.connect(url.database)) as file:
            file.executescript(statements)
        return
    engine = sa.create_engine(url)
    with engine.begin() as connection, connection.connection.cursor() as cursor:
        cursor.execute(statements)
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
    if table.name == "jobs":
        names |= {"price": "plan", "plan": "release_plan"}
    columns = [column for column in table.columns if names[column.name] in reflected.columns]
    # The types of the models: an older table has the same ones, under the names of the database.
    older = sa.table(table.name, *(sa.column(names[column.name], column.type) for column in columns))
    rows = [{names[name]: value for name, value in row._mapping.items()} for row in old.execute(sa.select(*columns))]
    if rows:
        new.execute(older.insert(), rows)


def test_there_is_one_line_of_revisions() -> None:
    assert len(_scripts().get_heads()) == 1
    assert [script.revision for script in _scripts().walk_revisions()][-1] == "0021"


def test_an_installation_from_before_1_0_0_goes_on(database: Database, older: Older) -> None:
    """Uploads have no names there, and what waits to be read calls its class names `classes`."""
    dataset = new_dataset(database)
    spend(read_account(database, claimed(database, new_job(database, dataset.id, 1000).id)), 7)
    waiting = uploads.begin_request(
        database, keys.create(database, "laptop")[0].id, {"class_names": "a,b", "records": 2}
    )
    with database.transaction() as session:
        session.add(IntakeRow(**vars(waiting)))
    before = state_of(database, dataset.id)
    moved = older()
    by_hand(
        moved,
        "ALTER TABLE uploads DROP COLUMN name",
        "UPDATE intakes SET form = :form",
        "UPDATE alembic_version SET version_num = '0021'",
        form='{"classes": "a,b", "records": 2}',
    )
    moved.migrate()
    moved.check()
    assert state_of(moved, dataset.id) == before
    assert uploads.get(moved, waiting.dataset_id).form == waiting.form
    assert_newest(moved)


def test_an_installation_goes_on(database: Database, older: Older) -> None:
    dataset = new_dataset(database)
    ended, running, waiting = (new_job(database, dataset.id, 1000) for _ in range(3))
    first, lease = claimed(database, ended.id), claimed(database, running.id)
    spend(read_account(database, first), 7)
    leases.finish(database, first, JobState.CANCELLED)
    spend(read_account(database, lease), 11)
    before = state_of(database, dataset.id)

    moved = older()
    moved.migrate()

    moved.check()
    assert check_against_log(moved) == ()
    assert state_of(moved, dataset.id) == before
    assert verified(moved, dataset.id).head_hash == before.head_hash
    # A worker of the older version goes on under its lease: a stored sum is replayed, a new step is charged.
    account = read_account(moved, lease)
    assert account.replay(0).tolist() == [0, 1, 2, 3]
    with pytest.raises(StateConflict):
        account.charge(0, "votes", 1)
    account.charge(1, "votes", 13)
    assert state_of(moved, dataset.id).charged_units == before.charged_units + 13
    assert jobs.get(moved, ended.id).state == JobState.CANCELLED
    assert_totals_add_up(moved)
    assert leases.next_queued(moved, queue="cpu") == (waiting.id,)
    leases.finish(moved, lease, JobState.SUCCEEDED)
    assert_totals_add_up(moved)
    assert_newest(moved)
    # The same records find their account again.
    assert new_dataset(moved, images(), epsilon=None, delta=None).account_id == dataset.account_id


def test_jobs_keep_their_price_and_their_plan_and_say_what_they_make(database: Database, older: Older) -> None:
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
    audit = audits.create(
        database, dataset_id=dataset.id, request={"attacks": []}, submitted_by="key_test", max_attempts=3
    )

    moved = older()
    moved.migrate()

    moved.check()
    for job in (image_maker, labeller, foreign, audit.job):
        # Earlier versions did not record who submitted a job, and wrote the first format.
        assert jobs.get(moved, job.id) == replace(jobs.get(database, job.id), submitted_by=None, format=1)
        assert jobs.get_plan(moved, job.id) == jobs.get_plan(database, job.id)
    assert jobs.get_plan(moved, labeller.id) == plan
    assert state_of(moved, dataset.id) == state_of(database, dataset.id)
    assert verified(moved, dataset.id).head_hash == state_of(database, dataset.id).head_hash


def test_keys_know_which_key_made_them_by_the_journal(database: Database, older: Older) -> None:
    first, other, replaced, alone = (keys.create(database, name)[0].id for name in ("first", "b", "c", "d"))
    for action, named, outcome, detail in (
        ("createApiKey", other, 201, ""),
        ("rotateApiKey", other, 201, f"made {replaced}"),
        ("createApiKey", alone, 422, ""),
        ("getApiKey", alone, 200, ""),
    ):
        note = {"action": action, "object_id": named, "outcome": outcome, "detail": detail}
        access_log.note(database, "default", actor=first, **note)
    moved = older()
    moved.migrate()
    made_by = {key.id: key.made_by for key in keys.list_keys(moved)}
    assert made_by == {first: None, other: first, replaced: first, alone: None}


def assert_newest(moved: Database) -> None:
    """Its tables are those of a new database."""
    engine = sa.create_engine(moved.url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        for table in Base.metadata.sorted_tables:
            wanted = {one.name for one in table.constraints if isinstance(one, sa.CheckConstraint)}
            assert {one["name"] for one in sa.inspect(connection).get_check_constraints(table.name)} == wanted
    engine.dispose()


def test_a_schema_from_before_the_oldest_is_left_alone_and_refused(older: Older) -> None:
    moved = older()
    by_hand(moved, "UPDATE alembic_version SET version_num = '0014'")
    moved.migrate()
    with pytest.raises(StoreUnavailable, match=r"at revision 0014.* version 1\.0\.0 first"):
        moved.check()


def test_a_newer_schema_says_which_versions_it_works_with(database: Database) -> None:
    """As if later revisions had been made: they added something, and then took something away."""
    head = _scripts().get_current_head()
    by_hand(database, "UPDATE alembic_version SET version_num = '9998'")
    database.migrate()
    database.check()
    new_job(database, new_dataset(database).id, 1000)
    for oldest, is_refused in ((head, False), ("9998", True)):
        by_hand(database, "UPDATE installation SET oldest_revision = :oldest", oldest=oldest)
        with pytest.raises(StoreUnavailable, match=r"A newer version .*9998") if is_refused else nullcontext():
            database.check()


def test_tables_that_a_newer_version_changed_under_a_running_one_are_a_reason_to_stop(database: Database) -> None:
    job = new_job(database, new_dataset(database).id, 1000)
    by_hand(database, "ALTER TABLE jobs RENAME COLUMN price TO cost")
    with pytest.raises(StoreUnavailable, match="another version"):
        jobs.get(database, job.id)


def spend(account: JobAccount, ledger_units: int) -> None:
    account.charge(0, "votes", ledger_units)
    account.store(0, np.arange(4, dtype=np.int64))
