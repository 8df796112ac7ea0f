"""One job, one process: claims, death and resurrection, fencing, cancellation."""

from __future__ import annotations

import signal
import stat
from pathlib import Path

from deployment import LEASE_SECONDS, MOMENTS, VOTES, Deployment, stop_between_transactions

from datalens_service.store import jobs, leases
from datalens_service.store.chain import EntryKind
from datalens_service.store.jobs import Job, JobState
from workers.process import Exit

RUN_JOB = "workers.run_job"


def assert_balanced(deployment: Deployment, job: Job) -> None:
    """Chain in order, every draw paid for, one draw per step, nothing under-counted or still reserved."""
    deployment.verified(job)
    charges = [entry for entry in deployment.entries(job) if entry.kind == EntryKind.CHARGE]
    drawn = deployment.stored_steps(job)
    ended = deployment.job(job)
    assert sorted(drawn) == list(range(len(drawn)))
    assert {entry.step for entry in charges} >= drawn.keys()
    assert ended.charged_units == sum(entry.units for entry in charges)
    assert ended.charged_units >= len(drawn) * charges[0].units
    assert ended.reserved_units == 0
    assert deployment.statement(job).charged_units == ended.charged_units


def test_killed_process_resumes_and_the_ledger_balances(either: Deployment) -> None:
    job = either.submit(VOTES)
    first = either.start_module(RUN_JOB, job.id)
    either.wait_for_steps(job, 10)
    first.kill()
    first.wait()
    before = either.stored_steps(job)
    either.lose_lease(job)

    assert either.start_module(RUN_JOB, job.id).wait() == Exit.ENDED

    assert either.wait_for_end(job).state == JobState.SUCCEEDED
    after = either.stored_steps(job)
    assert len(before) < len(after)
    assert before.items() <= after.items(), "a stored sum was drawn again"
    # Everything that was planned is charged. One step at most was lost: charged, and its sum not stored.
    assert either.job(job).charged_units == job.reserved_units
    assert len(after) >= VOTES["method"]["steps"] - 1
    assert_balanced(either, job)


def test_woken_zombie_dies_without_charging_or_drawing(local: Deployment) -> None:
    job = local.submit(VOTES)
    zombie = local.start_module(RUN_JOB, job.id)
    local.wait_for_steps(job, 5)
    stop_between_transactions(zombie.pid, local.folder / "datalens.db")
    local.lose_lease(job)
    successor = local.start_module(RUN_JOB, job.id)
    local.wait(lambda: local.latest_token(job) == 2)

    zombie.send_signal(signal.SIGCONT)

    assert zombie.wait(LEASE_SECONDS + 5) == Exit.FENCED
    assert successor.wait() == Exit.ENDED
    assert local.job(job).state == JobState.SUCCEEDED
    tokens = [entry.lease_token for entry in local.entries(job) if entry.kind == EntryKind.CHARGE]
    assert tokens == sorted(tokens), "the zombie charged after its successor had begun"
    assert_balanced(local, job)


def test_cancelled_job_stops_keeps_its_charge_and_returns_the_rest(local: Deployment) -> None:
    job = local.submit(VOTES)
    process = local.start_module(RUN_JOB, job.id)
    local.wait_for_steps(job, 5)

    jobs.request_cancel(local.database, job.id)

    assert process.wait(20) == Exit.ENDED
    ended = local.job(job)
    assert ended.state == JobState.CANCELLED
    assert 0 < ended.charged_units < job.reserved_units
    assert not private_files(local)
    assert_balanced(local, job)


def test_process_that_is_asked_to_end_gives_the_job_back(local: Deployment) -> None:
    job = local.submit(VOTES)
    process = local.start_module(RUN_JOB, job.id)
    local.wait_for_steps(job, 5)

    process.terminate()

    assert process.wait(20) == Exit.GIVEN_BACK
    waiting = local.job(job)
    assert (waiting.state, waiting.attempts) == (JobState.QUEUED, 0)
    assert waiting.reserved_units + waiting.charged_units == job.reserved_units


def test_held_job_is_left_alone(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)

    assert local.start_module(RUN_JOB, job.id).wait() == Exit.ENDED

    assert local.job(job).lease_token == lease.token
    assert not local.stored_steps(job)


def test_ended_and_unknown_jobs_are_left_alone(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    leases.finish(local.database, local.claim(job), JobState.FAILED, {"type": "x"})

    assert local.start_module(RUN_JOB, job.id).wait() == Exit.ENDED
    assert local.start_module(RUN_JOB, "job_unknown").wait() == Exit.ENDED


def test_private_files_are_for_their_user_alone(local: Deployment) -> None:
    job = local.submit(VOTES)
    local.start_module(RUN_JOB, job.id)
    local.wait_for_steps(job, 1)

    folders = [path for path in (local.folder / "private").rglob("*") if path.is_dir()]

    assert [path.name for path in folders] == [job.id, "1"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in [local.folder / "private", *folders])
    local.wait_for_end(job)
    local.wait(lambda: not private_files(local))


def private_files(deployment: Deployment) -> list[Path]:
    return list((deployment.folder / "private").iterdir())
