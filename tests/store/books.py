"""Short ways to the objects that most tests of the store begin with."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import create_engine, select, text

from datalens_service.base.errors import DatalensError
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import PlannedRelease
from datalens_service.methods import Plan
from datalens_service.proof.hash_chain import Balance, Entry
from datalens_service.proof.job_proof import AccountProof, build_account_proof
from datalens_service.report.build import MethodFacts, Report
from datalens_service.report.document import Product
from datalens_service.report.privacy_statement import first_releases, privacy_statement
from datalens_service.services.overview import overview
from datalens_service.spec import TrainingSpec
from datalens_service.store.access.usage import count_usage
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.ledger.account_summary import AccountSummary, entries, summarize_account
from datalens_service.store.ledger.chain_verification import verify_chain
from datalens_service.store.ledger.journal_pages import read_spenders
from datalens_service.store.schema.service_tables import ReleasedModelRow
from datalens_service.store.schema.tables import DEFAULT_TENANT, ArtifactRow, JobRow

Images = NDArray[np.uint8]

EPSILON = 1.0
DELTA = 1e-5
LEASE_SECONDS = 600
NO_RELEASES = Plan(releases=())
"""Of a job that is never run."""
LATER = timedelta(hours=1)


def images(seed: int = 0, count: int = 20) -> Images:
    """Random records; other seeds share none."""
    return np.random.default_rng(seed).integers(0, 256, (count, 6, 5, 1)).astype(np.uint8)


def schema(count: int = 20) -> Schema:
    return Schema(channels=1, height=6, width=5, class_names=("cat", "dog"), num_units=count)


def new_dataset(database: Database, records: Images | None = None, **changes: Any) -> StoredDataset:
    records = images() if records is None else records
    usual = {"dataset_id": datasets.new_id(), "records_path": "/nowhere", "schema": schema(max(2, len(records)))}
    named = {"epsilon": EPSILON, "delta": DELTA, **usual, **changes}
    return datasets.create(database, name="pets", images=records, format="npz", has_test=False, **named)


def new_job(database: Database, dataset_id: str, ledger_units: int, **changes: Any) -> Job:
    """A job that the store alone accepts, at any cost."""
    request = {"spec": {"method": "moments"}, "result": "generator", "price": {}, "plan": NO_RELEASES}
    return jobs.create(
        database, dataset_id=dataset_id, ledger_units=ledger_units, **{"submitted_by": "key_test", **request, **changes}
    )


def claimed(database: Database, job_id: str, **changes: Any) -> Lease:
    lease = leases.claim(database, job_id, "worker", LEASE_SECONDS, **changes)
    assert lease is not None
    return lease


def read_account(database: Database, lease: Lease) -> JobAccount:
    return JobAccount(database, lease.job_id, lease.token)


def running_job(
    database: Database, ledger_units: int = 1000, **changes: Any
) -> tuple[StoredDataset, Lease, JobAccount]:
    """A data set with a job that a worker has just claimed."""
    dataset = new_dataset(database)
    lease = claimed(database, new_job(database, dataset.id, ledger_units, **changes).id)
    return dataset, lease, read_account(database, lease)


def charge_until_refused(charge: Callable[[int], None], first_step: int = 0) -> int:
    """How many charges were accepted, each of which a draw may follow."""
    for step in range(first_step, first_step + 100):
        try:
            charge(step)
        except DatalensError:
            return step - first_step
    raise AssertionError("nothing was ever refused")


def later() -> datetime:
    """When every lease has run out."""
    return datetime.now(UTC) + LATER


def state_of(database: Database, dataset_id: str) -> AccountSummary:
    with database.session() as session:
        return summarize_account(session, dataset_id)


def journal_of(database: Database, dataset_id: str) -> list[Entry]:
    with database.session() as session:
        return entries(session, dataset_id)


def verified(database: Database, dataset_id: str) -> Balance:
    with database.session() as session:
        return verify_chain(session, dataset_id)


def prove(
    database: Database, job: Job, spec: TrainingSpec, public: Schema, plan: Plan, steps: int, result: str = "generator"
) -> AccountProof:
    """The proof of a job that made so many steps of a plan, and of the account that paid."""
    releases = tuple(PlannedRelease(mechanism=each.mechanism, count=each.count) for each in plan.releases)
    made = first_releases(releases, steps)
    report = Report(
        product=Product.at_commit(None),
        dataset_id=job.dataset_id,
        public_schema=public,
        method=MethodFacts(name=spec.method.name, spec=spec.model_dump(mode="json"), plan=releases),
        privacy=privacy_statement(
            releases=made,
            charged_units=jobs.get(database, job.id).charged_units,
            slack_charged=sum(release.slack for release in made),
            epsilon_limit=spec.epsilon,
            limit_units=spec.limit_units(public),
            delta=DELTA,
            num_units=public.num_units,
            unit=public.unit,
            result=result,
        ),
        result=result,
    )
    state = state_of(database, job.dataset_id)
    journal = journal_of(database, job.dataset_id)
    with database.session() as session:
        spenders = read_spenders(session, (entry.job_id for entry in journal))
    return build_account_proof(job.id, report, journal, state.epsilon, state.delta, spenders)


def assert_totals_add_up(database: Database) -> None:
    """What is kept of jobs that have ended is what their rows come to."""
    with database.session() as session:
        everything = session.scalars(select(JobRow)).all()
        mine = [row for row in everything if row.tenant_id == DEFAULT_TENANT and not row.is_audit]
        models = session.scalars(select(ReleasedModelRow.kind).where(ReleasedModelRow.tenant_id == DEFAULT_TENANT))
        kinds = Counter(models.all())
        released = session.execute(select(ArtifactRow.job_id, ArtifactRow.size).where(ArtifactRow.releasable)).all()
    usage = count_usage(database, DEFAULT_TENANT)
    assert usage.jobs == Counter(row.state for row in mine)
    assert (usage.generators, usage.classifiers) == (kinds["generator"], kinds["classifier"])
    assert isinstance(usage.artifact_bytes, int)
    assert usage.artifact_bytes == sum(size for job_id, size in released if job_id in {row.id for row in mine})
    lasted = [(row.started_at, row.finished_at) for row in mine if row.started_at and row.finished_at]
    assert usage.job_seconds == sum(int(end.timestamp()) - int(begin.timestamp()) for begin, end in lasted)
    assert +Counter(overview(database).jobs) == Counter(row.state for row in everything)


def by_hand(database: Database, *statements: str, **parameters: Any) -> None:
    """What somebody with the database's password and another program could do."""
    engine = create_engine(database.url)
    with engine.begin() as connection:
        for statement_text in statements:
            connection.execute(text(statement_text), parameters)
    engine.dispose()


def without_guards(database: Database, table: str) -> None:
    """Drop the triggers of a table, as an owner of the database can."""
    if database.dialect == "postgresql":
        by_hand(database, f"ALTER TABLE {table} DISABLE TRIGGER USER")
        return
    engine = create_engine(database.url)
    with engine.begin() as connection:
        query = text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :table")
        for name in connection.scalars(query, {"table": table}).all():
            connection.execute(text(f"DROP TRIGGER {name}"))
    engine.dispose()
