"""Accuracy on a data set that was set aside: charged there, once, and released as a noisy count only."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from datalens_service.base.errors import InvalidSpec, NotFound, StateConflict
from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import AccuracyCount, Mechanism
from datalens_service.mechanisms.accuracy import Answers
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, leases, measurements, released_models
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.ledger.account_summary import summarize_account
from datalens_service.store.ledger.chain_verification import verify_chain
from datalens_service.store.schema.tables import DEFAULT_TENANT, JobRow
from deployments.deployment import QUICK, Deployment, lamps

COST = AccuracyCount(num_units=400, noise_stddev=100).cost()


@pytest.fixture
def aside(local: Deployment) -> str:
    """A data set like the one that is trained on, with an account of its own."""
    return local.upload(lamps(seed=7, with_test=False)).id


def asking(aside: str, **more: Any) -> dict[str, Any]:
    evaluation = {"epochs": 2, "synthetic_images": 400, "floors": False, "ceiling": False, "fidelity": []}
    return {**QUICK, "evaluation": {**evaluation, "holdout": aside, **more}}


def run(local: Deployment, job: Job) -> dict[str, Any]:
    assert local.execute(job).state == JobState.SUCCEEDED
    return local.read_json(job, "report.json")


def charged(local: Deployment, dataset_id: str) -> int:
    with local.database.session() as session:
        verify_chain(session, dataset_id)
        return summarize_account(session, dataset_id).charged_units


def figures(report: dict[str, Any]) -> dict[str, Any]:
    return {measure["name"]: measure for measure in report["measures"]}


def test_it_is_charged_to_the_other_account_and_may_be_passed_on(local: Deployment, aside: str) -> None:
    job = local.submit(asking(aside))
    report = run(local, job)

    own = figures(report)["accuracy_holdout"]
    assert (own["audience"], own["status"]) == ("public", "covered")
    assert f"{COST:,} units" in own["protocol"]
    assert charged(local, aside) == COST
    assert charged(local, job.dataset_id) == local.job(job).charged_units == job.reserved_units
    assert list(figures(local.read_json(job, "report-releasable.json"))) == ["accuracy_holdout"]
    assert {access["access"]: access["status"] for access in report["privacy"]["data_accesses"]}[
        "accuracy on a data set that was set aside"
    ] == "charged"


def test_the_owner_hears_of_persons_in_both_data_sets_and_nobody_else(local: Deployment) -> None:
    """The count stays one of all units: whom it left out would tell of training images, and nobody charged that."""
    train, aside = (
        local.upload(with_persons(lamps(seed=seed, with_test=False), first)) for seed, first in ((3, 0), (7, 390))
    )
    job = local.submit(asking(aside.id, reference="holdout"), train)
    report = run(local, job)
    (caveat,) = report["person_caveats"]
    assert caveat.startswith("10 images (10 persons) of 400 in the data set that was set aside")
    assert "among 400 units" in figures(report)["accuracy_holdout"]["protocol"]
    assert "person_caveats" not in local.read_json(job, "report-releasable.json")


def with_persons(dataset: Dataset, first: int) -> Dataset:
    groups = np.arange(first, first + len(dataset.train.labels))
    return dataclasses.replace(dataset, train=dataclasses.replace(dataset.train, groups=groups))


def test_it_is_not_a_job_among_jobs_and_never_waits_for_a_worker(local: Deployment, aside: str) -> None:
    job = local.submit(asking(aside))
    run(local, job)
    assert [one.id for one in jobs.list_jobs(local.database).items] == [job.id]
    assert leases.next_queued(local.database) == ()
    made = released_models.list_models(local.database, DEFAULT_TENANT).items
    assert [generator.job_id for generator in made] == [job.id], "a figure has no generator"
    with local.database.session() as session:
        rows = session.scalars(select(JobRow).where(JobRow.measured_job_id == job.id)).all()
        assert [(row.state, row.charged_units, row.reserved_units, row.dataset_id) for row in rows] == [
            ("succeeded", COST, 0, aside)
        ]


def test_a_second_worker_of_the_same_job_pays_nothing_and_says_the_same(local: Deployment, aside: str) -> None:
    job = local.submit(asking(aside))
    first = run(local, job)
    with local.database.transaction() as session:
        session.get_one(JobRow, job.id).state = JobState.QUEUED
    again = run(local, job)
    assert charged(local, aside) == COST
    assert figures(first)["accuracy_holdout"] == figures(again)["accuracy_holdout"]


def test_a_worker_that_dies_after_the_draw_leaves_no_job_behind(local: Deployment, aside: str) -> None:
    job = local.submit(asking(aside))
    lease = local.claim(job)
    own = measurements.begin(local.database, local.job(job), aside, COST, dataclasses.replace(lease, seconds=-1))
    mechanism = AccuracyCount(num_units=400, noise_stddev=100)
    answers = Answers(np.ones(400, dtype=bool), np.arange(400))
    assert measurements.replay(local.database, job.id, aside) is None
    released = mechanism.release(
        lambda: answers, step=0, account=JobAccount(local.database, own.job_id, own.token), noise=NoiseSource()
    )
    leases.expire_leases(local.database)
    ended = jobs.get(local.database, own.job_id)
    assert (ended.state, ended.charged_units, ended.reserved_units) == (JobState.FAILED, COST, 0)
    assert leases.claim(local.database, own.job_id, "another", 30) is None
    noisy = measurements.replay(local.database, job.id, aside)
    assert noisy is not None
    assert mechanism.decode(noisy) == released
    assert measurements.replay(local.database, job.id, job.dataset_id) is None
    assert measurements.replay(local.database, own.job_id, aside) is None


def test_without_budget_there_is_a_reason_and_the_job_succeeds(local: Deployment, aside: str) -> None:
    with local.database.session() as session:
        limit = summarize_account(session, aside).remaining_units
    other = local.submit(QUICK, datasets.get(local.database, aside))
    with local.database.transaction() as session:
        row = session.get_one(JobRow, other.id)
        account = ledger.lock_account(session, row.account_id)
        rest = limit - row.reserved_units - COST + 1
        ledger.reserve(session, account, row, rest)
        row.reservation.reserved_units = limit - COST + 1
    report = run(local, local.submit(asking(aside)))
    (missing,) = report["unavailable"]
    assert "set aside" in missing["figure"]
    assert "remains" in missing["reason"]
    assert "accuracy" in figures(report)
    assert charged(local, aside) == 0


def test_nothing_of_the_set_aside_images_is_in_what_others_get(
    local: Deployment, aside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same noisy count for other images gives the same report, to the last byte."""
    texts = []
    for value in (0.25, 0.75):

        def counted(self: Mechanism, *_: Any, share: float = value, **__: Any) -> np.ndarray:
            return np.array([round(share * 400)], dtype=np.int64)

        with monkeypatch.context() as patch:
            patch.setattr(AccuracyCount, "exact_sum", counted)
            patch.setattr(AccuracyCount, "decode", lambda self, noisy: 50.0)
            job = local.submit(asking(aside))
            run(local, job)
        texts.append(figures(local.read_json(job, "report-releasable.json"))["accuracy_holdout"])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("wrong", ["same", "unknown", "shape", "deleted"])
def test_what_cannot_be_set_aside_is_refused(local: Deployment, aside: str, wrong: str) -> None:
    stored = local.upload(lamps())
    named, error = {
        "same": (stored.id, InvalidSpec),
        "unknown": ("ds_unknown", NotFound),
        "shape": (aside, InvalidSpec),
        "deleted": (aside, StateConflict),
    }[wrong]
    if wrong == "deleted":
        datasets.delete(local.database, aside)
    if wrong == "shape":
        other = lamps(seed=9)
        schema = other.schema.model_copy(update={"class_names": ("on", "off")})
        named = local.upload(dataclasses.replace(other, schema=schema)).id
    with pytest.raises(error):
        datasets.check_holdout(local.database, stored.id, named)
