"""Images can be had as soon as training has ended, and nothing that happens to their evaluation takes them away."""

import json
import signal
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from datalens_service.base.clock import utc_now
from datalens_service.jobs.failures import Exit
from datalens_service.jobs.job_watch import ShutdownRequested
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.proof.proof_verification import verify
from datalens_service.store.jobs import jobs, leases, released_models
from datalens_service.store.jobs.events import EventType, list_events
from datalens_service.store.jobs.jobs import Job, JobState
from deployments.deployment import MOMENTS, QUICK, Deployment

FILES = ("generator.safetensors", "synthetic.npz", "samples.png", "card.json", "privacy.json")
# Long enough to be killed in its middle.
SLOW = {**MOMENTS, "evaluation": {"epochs": 40, "synthetic_images": 1000, "seeds": 1, "fidelity": []}}


def once_in(phase: str, act: Callable[[], object]) -> Callable[[str, int, int], None]:
    """Does something when a phase begins."""
    done = False

    def observe(now: str, _value: int, _maximum: int) -> None:
        nonlocal done
        if now == phase and not done:
            done = True
            act()

    return observe


def charges(local: Deployment, job: Job) -> int:
    return sum(entry.kind == EntryKind.CHARGE for entry in local.entries(job))


def test_images_and_their_proof_are_there_before_they_are_measured(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    early: dict[str, bytes] = {}
    states: list[tuple[JobState, bool]] = []

    def look() -> None:
        now = local.job(job)
        states.append((now.state, now.released_at is not None))
        released_models.get(local.database, released_models.build_id(job.id))
        early.update({file.name: file.path.read_bytes() for file in local.artifacts.list_artifacts(job.id)})

    ended = local.execute(job, once_in("evaluating", look))

    assert states == [(JobState.RUNNING, True)]
    assert set(FILES) < set(early)
    assert verify(early["privacy.json"]).holds
    [pending] = json.loads(early["report.json"])["unavailable"]
    assert "had not ended" in pending["reason"]
    assert json.loads(early["report.json"])["measures"] == []
    final = local.read_json(job, "report.json")
    assert final["measures"]
    assert pending not in final["unavailable"]
    assert ended.state == JobState.SUCCEEDED
    # Whoever had the early files has the final ones: no figure of these records is for others.
    for name in FILES:
        assert local.read(job, name) == early[name], name


def test_the_release_is_an_event_between_training_and_evaluation(local: Deployment) -> None:
    job = local.execute(local.submit(MOMENTS))
    told = [(event.type, event.phase) for event in list_events(local.database, job.id)]
    place = told.index((EventType.RELEASED, "packaging"))
    assert all(phase != "evaluating" for _, phase in told[:place])
    assert any(phase == "evaluating" for _, phase in told[place:])


def test_a_job_that_is_not_measured_is_packaged_once(local: Deployment) -> None:
    job = local.submit(QUICK)
    phases: list[str] = []
    assert local.execute(job, lambda phase, *_: phases.append(phase)).released_at is not None
    assert set(phases) == {"training", "fitting", "drawing", "packaging"}
    assert local.read_json(job, "report.json")["unavailable"] == []


@pytest.mark.parametrize("phase", ["drawing", "packaging", "evaluating", "reporting"])
def test_cancelling_after_the_last_release_keeps_the_images(local: Deployment, phase: str) -> None:
    job = local.submit(MOMENTS)

    ended = local.execute(job, once_in(phase, partial(jobs.request_cancel, local.database, job.id)))

    assert (ended.state, ended.error, ended.charged_units) == (JobState.SUCCEEDED, None, job.reserved_units)
    assert all(local.artifacts.releasable(job.id, name).size for name in FILES)
    report = local.read_json(job, "report.json")
    assert bool(report["measures"]) == (phase == "reporting")


def test_cancelling_a_job_that_pauses_in_its_evaluation_keeps_the_images(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)

    pause = partial(jobs.request_pause, local.database, job.id)
    with pytest.raises(ShutdownRequested):
        local.execute(job, once_in("evaluating", pause), lease)
    assert leases.give_back(local.database, lease).state == JobState.PAUSED

    assert jobs.request_cancel(local.database, job.id).state == JobState.SUCCEEDED
    assert local.statement(job).reserved_units == 0


def test_a_failure_after_the_release_keeps_the_images(local: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    job = local.submit(MOMENTS)
    monkeypatch.setattr("datalens_service.jobs.execute.restate", fail)

    ended = local.execute(job)

    assert (ended.state, ended.error) == (JobState.SUCCEEDED, None)
    assert verify(local.read(job, "privacy.json")).holds


def test_workers_lost_in_the_evaluation_keep_the_images(local: Deployment) -> None:
    """The machine kills a process that needs too much memory, however often it is begun again."""
    job = local.submit(MOMENTS, max_attempts=2)

    def die() -> None:
        raise SystemExit

    for _ in range(3):
        now = local.job(job)
        if now.state.terminal:
            break
        with pytest.raises(SystemExit):
            local.execute(job, once_in("evaluating", die))
        leases.expire_leases(local.database, now=utc_now() + timedelta(seconds=601))

    assert (local.job(job).state, local.job(job).error) == (JobState.SUCCEEDED, None)
    assert charges(local, job) == 3
    assert local.job(job).charged_units == job.reserved_units


def test_a_kill_in_the_evaluation_is_gone_on_from_without_a_second_charge(local: Deployment) -> None:
    job = local.submit(SLOW)
    victim = local.start_job(job.id)
    local.wait(lambda: local.job(job).progress.phase == "evaluating")
    first, steps = local.job(job), local.stored_steps(job)
    assert first.released_at is not None
    images = local.read(job, "synthetic.npz")

    victim.send_signal(signal.SIGKILL)
    victim.wait()
    local.lose_lease(job)
    assert local.start_job(job.id).wait() == Exit.ENDED

    ended = local.job(job)
    assert (ended.state, ended.released_at) == (JobState.SUCCEEDED, first.released_at)
    assert (ended.charged_units, charges(local, job)) == (first.charged_units, 3)
    assert local.stored_steps(job) == steps
    assert local.read(job, "synthetic.npz") == images
    assert local.read_json(job, "report.json")["measures"]
    local.assert_balanced(job)
