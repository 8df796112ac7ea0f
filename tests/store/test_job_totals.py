"""What is kept of jobs that have ended is what all their rows come to, however they ended."""

from contextlib import suppress
from pathlib import Path

import pytest

from datalens_service.store.access import tenants
from datalens_service.store.access.usage import count_usage
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import audits, jobs, leases, measurements, released_models
from datalens_service.store.jobs.jobs import JobState, end
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.schema.tables import DEFAULT_TENANT

from .books import assert_totals_add_up, claimed, images, later, new_dataset, new_job

pytestmark = pytest.mark.both_databases


def put_files(database: Database, folder: Path, lease: Lease) -> None:
    """One that is replaced, one that turns private, one that is private."""
    store = ArtifactStore(database, folder)
    for name, content, releasable in (
        ("samples.png", b"grid", True),
        ("samples.png", b"finer grid", True),
        ("card.json", b"{}", True),
        ("report.json", b"report", True),
        ("report.json", b"report", False),
        ("teachers", b"weights", False),
    ):
        store.put(lease, name, content, releasable=releasable, media_type="text/plain")


def test_jobs_of_every_end_count(database: Database, tmp_path: Path) -> None:
    dataset, aside = new_dataset(database), new_dataset(database, images(seed=1))
    held = []
    for result in ("generator", "classifier", "generator", "generator", "generator"):
        held.append(claimed(database, new_job(database, dataset.id, 100, result=result).id))
        put_files(database, tmp_path, held[-1])
        assert_totals_add_up(database)
    made, labels, failed, released, lost = held
    leases.finish(database, made, JobState.SUCCEEDED)
    leases.mark_released(database, labels, "classifier")
    assert_totals_add_up(database)
    leases.finish(database, labels, JobState.CANCELLED)
    leases.finish(database, failed, JobState.FAILED, {"type": "file-damaged"})
    leases.mark_released(database, released, "generator")
    jobs.request_cancel(database, new_job(database, dataset.id, 100).id)
    measured = measurements.begin(database, jobs.get(database, released.job_id), aside.id, 10, released)
    leases.finish(database, measured, JobState.SUCCEEDED)
    audit = audits.create(database, dataset_id=dataset.id, request={"attacks": []}, submitted_by="key_test")
    leases.finish(database, claimed(database, audit.job.id), JobState.SUCCEEDED)
    card = released_models.new_id()
    released_models.add_imported(database, card, DEFAULT_TENANT, name="x", card={}, sha256="0" * 64)
    assert_totals_add_up(database)
    usage = count_usage(database, DEFAULT_TENANT)
    assert usage.jobs == {"succeeded": 3, "failed": 1, "cancelled": 1, "running": 2}
    assert (usage.generators, usage.classifiers, usage.artifact_bytes) == (3, 1, 5 * len(b"finer grid{}"))

    leases.expire_leases(database, [lost.job_id], now=later())
    for lease in (released, claimed(database, lost.job_id)):
        leases.finish(database, lease, JobState.SUCCEEDED)
    released_models.delete_imported(database, card)
    datasets.delete(database, dataset.id)
    assert_totals_add_up(database)


def test_an_end_that_did_not_happen_does_not_count(database: Database) -> None:
    lease = claimed(database, new_job(database, new_dataset(database).id, 100).id)
    with suppress(KeyError), leases.locked(database, lease) as (session, row):
        end(session, row, JobState.FAILED, None)
        session.flush()
        raise KeyError
    assert_totals_add_up(database)
    leases.finish(database, lease, JobState.SUCCEEDED)
    assert_totals_add_up(database)


@pytest.mark.postgres
def test_a_process_that_is_slow_to_end_its_job_keeps_no_other_from_it(postgresql_database: Database) -> None:
    slow, quick = (
        claimed(postgresql_database, new_job(postgresql_database, new_dataset(postgresql_database, one).id, 100).id)
        for one in (images(), images(seed=1))
    )
    with leases.locked(postgresql_database, slow) as (session, row):
        end(session, row, JobState.FAILED, None)
        session.flush()
        leases.finish(postgresql_database, quick, JobState.FAILED)
    assert count_usage(postgresql_database, DEFAULT_TENANT).jobs == {"failed": 2}


def test_a_measurement_belongs_to_the_tenant_of_its_data_set(database: Database) -> None:
    tenant = tenants.create(database, "clinic").id
    dataset, aside = (new_dataset(database, images(seed), tenant_id=tenant) for seed in (0, 1))
    lease = claimed(database, new_job(database, dataset.id, 100).id)
    measurements.begin(database, jobs.get(database, lease.job_id), aside.id, 10, lease)
    assert count_usage(database, tenant).jobs == {"running": 2}
    assert count_usage(database, DEFAULT_TENANT).jobs == {}
