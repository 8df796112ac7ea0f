"""One job, one process: fencing, and what is left alone."""

import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import datalens_service.jobs.execute
from datalens_service.base.progress import Phase
from datalens_service.jobs import memory
from datalens_service.jobs.failures import Exit
from datalens_service.methods import ExecutionOptions
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.training import Observer
from datalens_service.workers.run_job import run_job
from deployments.deployment import MOMENTS, VOTES, Deployment, stop_between_transactions


def test_woken_zombie_dies_without_charging_or_drawing(
    local: Deployment, record_property: Callable[[str, object], None]
) -> None:
    local.changes["DATALENS_LEASE_SECONDS"] = "600"  # Lost by `lose_lease` alone, however busy the machine is.
    job = local.submit(VOTES)
    with local.held(4):
        zombie = local.start_job(job.id)
        local.wait_for_steps(job, 5)
        stop_between_transactions(zombie.pid, local.database)
        record_property("stops", 1)
        local.lose_lease(job)
        successor = local.start_job(job.id)
        local.wait(lambda: local.latest_token(job) == 2)

    zombie.send_signal(signal.SIGCONT)

    assert zombie.wait() == Exit.FENCED
    assert successor.wait() == Exit.ENDED
    assert local.job(job).state == JobState.SUCCEEDED
    tokens = [entry.lease_token for entry in local.entries(job) if entry.kind == EntryKind.CHARGE]
    assert tokens == sorted(tokens), "the zombie charged after its successor had begun"
    local.assert_balanced(job)


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FAILED])
def test_held_or_ended_job_is_left_alone(local: Deployment, state: JobState) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)
    if state.terminal:
        leases.finish(local.database, lease, state, {"type": "x"})

    assert run_job(local.settings, job.id, threading.Event()) == Exit.ENDED

    assert (local.job(job).state, local.job(job).lease_token) == (state, lease.token)
    assert not local.stored_steps(job)


def test_unknown_job_is_nobodys_business_whatever_the_environment_holds(local: Deployment) -> None:
    local.changes |= {f"FILLER_{number}": 100_000 * "x" for number in range(10)}
    assert local.start_job("job_unknown").wait() == Exit.ENDED
    assert "there is no such job" in local.log.read_text()


def test_a_job_whose_gpu_another_program_takes_goes_back_and_goes_on_with_what_it_paid_for(
    local: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor stands for the GPU, of whose memory others leave a mebibyte in the middle of the training."""
    steps = []
    train = datalens_service.jobs.execute.run

    def train_here(*arguments: Any, options: ExecutionOptions, observe: Observer, **named: Any) -> Any:
        def lack_once(phase: Phase, value: int, maximum: int) -> None:
            steps.append(value)
            if len(steps) == 5:
                raise MemoryError
            observe(phase, value, maximum)

        return train(*arguments, options=replace(options, device="cpu"), observe=lack_once, **named)

    monkeypatch.setattr(datalens_service.jobs.execute, "training_device", lambda _: "cuda")
    monkeypatch.setattr(datalens_service.jobs.execute, "run", train_here)
    monkeypatch.setattr(memory, "_read_left_by_others", lambda _: (80 * 2**30, 2**20))
    job = local.submit(VOTES)

    assert run_job(local.settings, job.id, threading.Event()) == Exit.GIVEN_BACK

    waiting = local.job(job)
    assert (waiting.state, waiting.attempts, waiting.error) == (JobState.QUEUED, 0, None)
    paid = waiting.charged_units
    assert paid > 0
    assert waiting.reserved_units + paid >= job.reserved_units

    assert run_job(local.settings, job.id, threading.Event()) == Exit.ENDED
    assert local.job(job).state == JobState.SUCCEEDED
    assert local.job(job).charged_units > paid
    local.assert_balanced(job)
