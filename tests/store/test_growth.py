"""What is asked often reads no row of the jobs of the past, and works no more the longer the past is."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from benchmarks.growth import History
from datalens_service.jobs.execute import execute
from datalens_service.privacy import accounting
from datalens_service.services.overview import overview
from datalens_service.store.access import keys
from datalens_service.store.access.usage import count_usage
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets, uploads, views
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.jobs import audits, jobs, leases, released_models
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.ledger import journal_pages
from datalens_service.store.schema.tables import DEFAULT_TENANT
from deployments.deployment import QUICK, Deployment, lamps

ASKED: dict[str, Callable[[Database], Any]] = {
    "metrics": overview,
    "usage": lambda database: count_usage(database, DEFAULT_TENANT),
    "list": lambda database: jobs.list_jobs(database, JobFilter(DEFAULT_TENANT), limit=20),
    "next job": leases.next_queued,
    "lost workers": leases.list_silent,
}
MORE: dict[str, Callable[[Database], Any]] = {
    "poll": lambda database: jobs.get(database, "job_1_1"),
    "jobs of a data set": lambda database: jobs.list_jobs(database, JobFilter(dataset_id="ds_1"), limit=20),
    "data sets": lambda database: views.list_views(database, DEFAULT_TENANT, limit=5),
    "journal": lambda database: read(database, journal_pages.read_slice, "ds_1", None, 20),
    "deletion": lambda database: read(database, journal_pages.read_deletion, "ds_2"),
    "no deletion": lambda database: read(database, journal_pages.read_deletion, "ds_1"),
    "failed jobs": lambda database: jobs.list_jobs(database, JobFilter(DEFAULT_TENANT, state="failed"), limit=20),
    "failed jobs of a data set": lambda database: jobs.list_jobs(
        database, JobFilter(DEFAULT_TENANT, dataset_id="ds_1", state="failed"), limit=20
    ),
    "audits": lambda database: audits.list_audits(database, DEFAULT_TENANT, limit=20),
    "audits of a data set": lambda database: audits.list_audits(database, DEFAULT_TENANT, limit=20, dataset_id="ds_1"),
    "audits of a job": lambda database: audits.list_about(database, "ds_1", "job_1_1"),
    "classifiers": lambda database: released_models.list_models(database, DEFAULT_TENANT, kind="classifier", limit=20),
}
STEPS_OF_A_DATASET = {"metrics": 30, "usage": 4}
"""What lists or counts all data sets takes so many steps of SQLite's machine for each."""


def read(database: Database, reading: Callable[..., Any], *arguments: Any) -> None:
    with database.session() as session:
        reading(session, *arguments)


def grow(database: Database, folder: Path, num_datasets: int, num_jobs: int) -> Database:
    """A real data set with a real job, and so many copies; one of the data sets was deleted."""
    local = Deployment(database, folder)
    stored = local.upload(lamps())
    job = local.submit(QUICK | {"epsilon": 0.1}, stored)
    execute(database, ArtifactStore(database, folder), local.settings, local.claim(job))
    seen = replace(uploads.begin_request(database, keys.create(database, "owner")[0].id, {}), dataset_id=stored.id)
    with database.transaction() as session:
        uploads.settle(session, seen, DatasetState.READY, {}, {})
    History(database, local.ledger_log, stored.id, job.id).write(num_datasets, num_jobs)
    datasets.delete(database, "ds_2")
    return database


def count_steps(database: Database, ask: Callable[[Database], Any]) -> int:
    """Steps that SQLite's machine takes to answer: the same on every computer."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    def watch(connection: Connection, *_: Any) -> None:
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(count, 1)

    event.listen(database._reader, "before_cursor_execute", watch)
    ask(database)
    event.remove(database._reader, "before_cursor_execute", watch)
    return steps


@pytest.fixture(scope="module")
def grown(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Database]]:
    """Services by the number of their data sets, the second with nine times as many jobs."""
    made = {}
    for num_datasets, num_jobs in ((8, 240), (24, 2160)):
        folder = tmp_path_factory.mktemp("grown")
        shutil.copy(sqlite_template, folder / "datalens.db")
        made[num_datasets] = Database(f"sqlite:///{folder / 'datalens.db'}", ChargeLog(folder / "ledger.log"))
        grow(made[num_datasets], folder, num_datasets, num_jobs)
    yield made
    for database in made.values():
        database.dispose()


@pytest.mark.parametrize("asked", [*ASKED, *MORE])
def test_a_longer_history_is_no_more_work(grown: dict[int, Database], asked: str) -> None:
    (fewer, short), (more, long) = (
        (datasets, count_steps(database, (ASKED | MORE)[asked])) for datasets, database in grown.items()
    )
    assert short > 0
    assert long <= 1.2 * short + STEPS_OF_A_DATASET.get(asked, 0) * (more - fewer)


def test_the_budget_of_an_account_is_converted_again_only_when_it_has_changed(
    grown: dict[int, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = grown[8]
    before = [account.figures() for account in overview(database).accounts.values()]
    monkeypatch.setattr(accounting, "epsilon_of_charge", None)
    assert [account.figures() for account in overview(database).accounts.values()] == before
