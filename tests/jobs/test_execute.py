"""A job from its claim to its last file, in this process."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from safetensors.numpy import save_file
from sqlalchemy import update

import datalens_service.jobs.execute
import datalens_service.jobs.run_evaluation
from datalens_service.base import logs
from datalens_service.base.errors import NotFound, StaleLease, StoreUnavailable
from datalens_service.base.progress import Phase
from datalens_service.jobs.job_watch import JobWatch, PauseRequested, ShutdownRequested
from datalens_service.methods import Moments
from datalens_service.models.generators.generator import Generator
from datalens_service.proof.proof_verification import verify
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.account_summary import journal, read_account
from datalens_service.store.schema.tables import DatasetRow, JobRow
from deployments.deployment import MOMENTS, QUICK, VOTES, Deployment, lamps

RELEASABLE = {
    "generator.safetensors",
    "synthetic.npz",
    "samples.png",
    "card.json",
    "privacy.json",
    "report-releasable.json",
    "report-releasable.html",
    "evidence-releasable.html",
    "registry.yaml",
    "pixel-hashes.txt",
}
PRIVATE = {"report.json", "report.html", "evidence.html", "account-proof.json"}


def private_files(local: Deployment) -> list[Path]:
    return [path for path in (local.folder / "private").rglob("*") if path.is_file()]


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(datalens_service.jobs.execute, "run", fail)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_job_leaves_all_its_files_and_no_private_state(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    phases: list[str] = []

    ended = local.execute(job, lambda phase, *_: phases.append(phase))

    assert (ended.state, ended.error) == (JobState.SUCCEEDED, None)
    assert list(dict.fromkeys(phases)) == list(Phase)[:-1]
    made = local.artifacts.list_artifacts(job.id)
    assert {file.name for file in made if file.releasable} == RELEASABLE
    assert {file.name for file in made if not file.releasable} == PRIVATE
    assert not private_files(local)
    measured = {measure["name"] for measure in local.read_json(job, "report.json")["measures"]}
    assert measured == {"accuracy", "discriminant", "floor_majority", "floor_averages", "ceiling"}
    assert local.read_json(job, "report-releasable.json")["measures"] == []


def test_report_says_what_the_ledger_says(local: Deployment) -> None:
    job = local.execute(local.submit(QUICK))

    report, now = local.read_json(job, "report.json"), local.statement(job)
    assert report["product"]["commit"]

    assert report["privacy"]["headline"]["units"] == local.job(job).charged_units == now.charged_units
    assert report["privacy"]["headline"]["points"][0]["epsilon"] <= MOMENTS["epsilon"]
    # Also what the job returned: the report is written before its end and speaks of the time after it.
    lifetime = report["privacy"]["lifetime"]
    assert (lifetime["spent"], lifetime["reserved"]) == (now.epsilon_spent, now.epsilon_reserved) == (2.0, 0.0)
    assert lifetime["remaining"] == now.epsilon_remaining


def test_both_proofs_of_a_job_verify(local: Deployment) -> None:
    job = local.execute(local.submit(QUICK))

    proof = local.artifacts.releasable(job.id, "privacy.json").path
    account = local.artifacts.get(job.id, "account-proof.json").path

    for path in (proof, account):
        verdict = verify(path.read_bytes())
        assert verdict.holds, verdict.contradiction
        assert local.read_json(job, path.name)["card"] == local.read_json(job, "card.json")
    with pytest.raises(NotFound):
        local.artifacts.releasable(job.id, "account-proof.json")


def test_only_the_owner_learns_that_two_uploads_share_a_record(local: Deployment) -> None:
    stored = local.upload(lamps())
    other = local.upload(lamps())
    job = local.execute(local.submit(QUICK, stored))

    assert local.read_json(job, "report.json")["privacy"]["lifetime"]["linked"]
    assert local.read_json(job, "report-releasable.json")["privacy"]["lifetime"] is None
    with local.database.session() as session:
        account = read_account(session, stored.id)
        heads = [entry.hash for entry in journal(session, account.id)]
    for file in local.artifacts.list_artifacts(job.id):
        if file.releasable:
            content = file.path.read_bytes()
            for told in (other.id, account.id, *heads):
                assert told.encode() not in content, file.name


def test_packed_images_are_what_the_generator_draws(local: Deployment) -> None:
    job = local.execute(local.submit(QUICK))

    generator = Generator.load(local.artifacts.get(job.id, "generator.safetensors").path)
    with np.load(local.artifacts.get(job.id, "synthetic.npz").path) as packed:
        images, labels = generator.sample(MOMENTS["synthetic_images"])
        np.testing.assert_array_equal(packed["train_images"], images.squeeze(-1))
        np.testing.assert_array_equal(packed["train_labels"], labels)


def test_failure_says_nothing_private(
    local: Deployment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.configure("debug")
    canary = "pixel 98173 of record canary.png, loss 0.2718"
    error = ValueError(canary)
    error.__cause__ = KeyError(canary)
    fail_with(monkeypatch, error)
    job = local.submit(QUICK)

    ended = local.execute(job)

    assert ended.state == JobState.FAILED
    assert ended.error is not None
    assert ended.error["type"] == "internal-error"
    log = "".join(capfd.readouterr())
    assert "ValueError" in log
    assert "test_execute.py" in log, "without a place nobody can repair it"
    for said in (json.dumps(ended.error), log):
        assert not any(part in said for part in ("canary", "98173", "2718"))


def test_deliberate_error_speaks_for_itself(local: Deployment) -> None:
    job = local.submit(QUICK)
    for file in (local.folder / "datasets").rglob("*_labels.npy"):
        file.write_bytes(b"not an array")

    ended = local.execute(job)

    assert ended.state == JobState.FAILED
    assert ended.error is not None
    assert (ended.error["type"], ended.charged_units, ended.reserved_units) == ("dataset-invalid", 0, 0)
    assert "Restore it from a backup" in ended.error["detail"]


@pytest.mark.parametrize("error", [StoreUnavailable("no disk"), StaleLease("not yours"), ShutdownRequested()])
def test_job_that_can_go_on_elsewhere_does_not_end(
    local: Deployment, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_with(monkeypatch, error)
    job = local.submit(QUICK)

    with pytest.raises(type(error)):
        local.execute(job)

    assert local.job(job).state == JobState.RUNNING


def test_job_cancelled_in_training_has_no_images_and_keeps_its_charge(
    local: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = local.submit(QUICK)
    hear, heard = JobWatch._hear, threading.Event()

    def hear_and_tell(watch: JobWatch) -> None:
        hear(watch)
        if watch._requests.cancel:
            heard.set()

    def cancel(_phase: str, value: int, _maximum: int) -> None:
        if value == 2 and not local.job(job).cancel_requested:
            jobs.request_cancel(local.database, job.id)
            heard.wait()

    monkeypatch.setattr(JobWatch, "_hear", hear_and_tell)
    ended = local.execute(job, cancel)

    assert (ended.state, ended.released_at) == (JobState.CANCELLED, None)
    assert 0 < ended.charged_units < job.reserved_units
    assert not private_files(local)


def test_job_that_was_taken_over_releases_nothing(local: Deployment) -> None:
    job = local.submit(QUICK)
    lease = local.claim(job)

    def lose(phase: str, _value: int, _maximum: int) -> None:
        if phase == "drawing" and local.job(job).lease_token == lease.token:
            local.lose_lease(job)
            local.claim(job)

    with pytest.raises(StaleLease):
        local.execute(job, lose, lease)

    assert local.artifacts.list_artifacts(job.id) == ()
    assert (local.job(job).state, local.job(job).lease_token) == (JobState.RUNNING, lease.token + 1)


@pytest.mark.parametrize("error", [RuntimeError("no convolution on this machine"), MemoryError()])
def test_measuring_that_fails_does_not_cost_the_generator(
    local: Deployment, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(datalens_service.jobs.run_evaluation, "evaluate", fail)
    job = local.submit(MOMENTS)

    assert local.execute(job).state == JobState.SUCCEEDED
    assert local.read_json(job, "report.json")["measures"] == []
    assert local.artifacts.releasable(job.id, "generator.safetensors").size > 0


def test_checkpoint_of_another_version_is_dropped(local: Deployment) -> None:
    job = local.submit(QUICK)
    old = local.folder / "private" / job.id / "0" / "checkpoint.safetensors"
    old.parent.mkdir(parents=True)
    save_file({"teacher": np.zeros(3)}, old, {"digest": "of another version", "step": "2"})

    assert local.execute(job).state == JobState.SUCCEEDED


def test_job_that_is_to_pause_is_given_back_before_its_next_step(local: Deployment) -> None:
    job = local.submit(QUICK)
    jobs.request_pause(local.database, job.id)
    jobs.resume(local.database, job.id)
    lease = local.claim(job)
    jobs.request_pause(local.database, job.id)

    with pytest.raises(PauseRequested):
        local.execute(job, lease=lease)

    assert local.stored_steps(job) == {}
    assert leases.give_back(local.database, lease).state == JobState.PAUSED


def test_files_hold_no_private_image_and_no_private_count(local: Deployment) -> None:
    dataset = lamps()
    job = local.execute(local.submit(QUICK, local.upload(dataset)))

    counts = set(np.bincount(dataset.train.labels).tolist())
    for file in local.artifacts.list_artifacts(job.id):
        content = file.path.read_bytes()
        assert not any(image.tobytes() in content for image in dataset.train.images)
        assert not (file.name.endswith(".json") and counts & set(numbers_in(json.loads(content))))
        assert str(local.folder).encode() not in content, "paths are nobody's business"
    with np.load(local.artifacts.get(job.id, "synthetic.npz").path) as packed:
        private = {image.tobytes() for image in dataset.train.images}
        assert not any(image.tobytes() in private for image in packed["train_images"])


def numbers_in(value: Any) -> list[float]:
    """Every number of a JSON document."""
    if isinstance(value, dict):
        return [number for member in value.values() for number in numbers_in(member)]
    if isinstance(value, list):
        return [number for member in value for number in numbers_in(member)]
    return [value] if isinstance(value, int | float) else []


def test_a_card_that_claims_more_classes_than_were_priced_is_told_apart(local: Deployment) -> None:
    votes = {**VOTES, "method": {**VOTES["method"], "shards": "class_pure", "steps": 2}}
    job = local.execute(local.submit(votes))
    proof = local.read_json(job, "privacy.json")
    assert verify(json.dumps(proof).encode()).holds

    proof["card"]["privacy"]["classes_per_unit"] = 2

    verdict = verify(json.dumps(proof).encode())
    assert "as many records and classes" in (verdict.contradiction or "")


def test_what_was_reserved_is_what_is_run(local: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    job = local.submit(MOMENTS)
    _plan_otherwise(monkeypatch)

    ended = local.execute(job)

    assert (ended.state, ended.charged_units) == (JobState.SUCCEEDED, job.reserved_units)
    planned = jobs.get_plan(local.database, job.id)
    assert planned is not None
    assert planned.cost() == job.reserved_units
    charged = [release["count"] for release in local.read_json(job, "report.json")["method"]["plan"]]
    assert charged == [release.count for release in planned.releases]


def test_a_job_without_a_stored_plan_runs_at_its_price_or_not_at_all(
    local: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    same, other = local.submit(MOMENTS), local.submit(MOMENTS)
    with local.database.transaction() as session:
        session.execute(update(JobRow).values(plan=None))

    ended = local.execute(same)
    _plan_otherwise(monkeypatch)
    refused = local.execute(other)

    assert (ended.state, ended.charged_units) == (JobState.SUCCEEDED, same.reserved_units)
    assert (refused.state, refused.charged_units) == (JobState.FAILED, 0)
    assert refused.error is not None
    assert refused.error["type"] == "state-conflict"


def test_a_job_whose_data_set_has_lost_its_key_is_refused_uncharged(local: Deployment) -> None:
    job = local.submit(VOTES)
    with local.database.transaction() as session:
        session.execute(update(DatasetRow).values(partition_key=b""))

    ended = local.execute(job)

    assert (ended.state, ended.charged_units) == (JobState.FAILED, 0)
    assert ended.error is not None
    assert ended.error["type"] == "dataset-invalid"


def test_a_job_whose_test_images_are_lost_is_refused_uncharged(local: Deployment) -> None:
    """It would say that the owner had none."""
    job = local.submit(VOTES)
    folder = Path(datasets.get(local.database, job.dataset_id).records_path)
    for part in ("images", "labels"):
        (folder / f"test_{part}.npy").unlink()

    ended = local.execute(job)

    assert (ended.state, ended.charged_units) == (JobState.FAILED, 0)
    assert (ended.error or {})["type"] == "file-damaged"


def _plan_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of the method spends half of what this one does."""
    plan = Moments.plan
    monkeypatch.setattr(Moments, "plan", lambda self, schema, units: plan(self, schema, units // 2))
