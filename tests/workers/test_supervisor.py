"""The local supervisor with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from deployment import MOMENTS, VOTES, Deployment, lamps, stop_between_transactions
from test_run_job import assert_balanced, private_files

from datalens_service.store import jobs
from datalens_service.store.jobs import JobState

SUPERVISOR = "workers.supervisor"


def test_job_runs_to_its_end(either: Deployment) -> None:
    job = either.submit(MOMENTS)

    either.start_module(SUPERVISOR)

    ended = either.wait_for_end(job)
    assert (ended.state, ended.error) == (JobState.SUCCEEDED, None)
    assert_balanced(either, job)


def test_killed_job_process_is_replaced_within_seconds(either: Deployment) -> None:
    job = either.submit(VOTES)
    either.start_module(SUPERVISOR)
    either.wait_for_steps(job, 5)

    os.kill(either.worker_pid(job), signal.SIGKILL)
    killed = time.monotonic()
    either.wait(lambda: either.job(job).lease_token == 2)

    # Far less than the 30 s that a lease lasts by default: the supervisor knows that the process is dead.
    assert time.monotonic() - killed < 4
    assert either.wait_for_end(job).state == JobState.SUCCEEDED
    assert_balanced(either, job)


def test_process_that_hangs_is_killed_and_replaced(local: Deployment) -> None:
    job = local.submit(VOTES)
    local.start_module(SUPERVISOR)
    local.wait_for_steps(job, 5)
    hanging = local.worker_pid(job)

    stop_between_transactions(hanging, local.folder / "datalens.db")

    assert local.wait_for_end(job).state == JobState.SUCCEEDED
    assert local.job(job).lease_token > 1
    local.wait(lambda: not alive(hanging))
    assert_balanced(local, job)


def test_job_whose_process_always_dies_ends(local: Deployment) -> None:
    # Stands for a lack of memory. Only the job process imports torch, so only that is hit.
    deadly = local.folder / "deadly" / "torch" / "__init__.py"
    deadly.parent.mkdir(parents=True)
    deadly.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    local.changes["PYTHONPATH"] = str(deadly.parent.parent)
    job = local.submit(VOTES, max_attempts=2)

    local.start_module(SUPERVISOR)

    ended = local.wait_for_end(job)
    assert ended.error is not None
    assert (ended.state, ended.error["type"]) == (JobState.FAILED, "worker-lost")
    assert (ended.lease_token, ended.charged_units, ended.reserved_units) == (2, 0, 0)
    local.wait(lambda: not private_files(local))


def test_two_supervisors_start_each_job_once(local: Deployment) -> None:
    submitted = [local.submit(MOMENTS, local.upload(lamps(seed))) for seed in (1, 2)]

    local.start_module(SUPERVISOR)
    local.start_module(SUPERVISOR)

    for job in submitted:
        ended = local.wait_for_end(job)
        assert (ended.state, ended.lease_token) == (JobState.SUCCEEDED, 1)
        assert_balanced(local, job)


def test_stopped_supervisor_gives_its_jobs_back(local: Deployment) -> None:
    job = local.submit(VOTES)
    supervisor = local.start_module(SUPERVISOR)
    local.wait_for_steps(job, 5)

    supervisor.terminate()

    assert supervisor.wait(20) == 0
    assert (local.job(job).state, local.job(job).attempts) == (JobState.QUEUED, 0)
    local.start_module(SUPERVISOR)
    assert local.wait_for_end(job).state == JobState.SUCCEEDED
    assert_balanced(local, job)


def test_job_survives_the_death_of_its_supervisor(local: Deployment) -> None:
    job = local.submit(VOTES)
    supervisor = local.start_module(SUPERVISOR)
    local.wait_for_steps(job, 5)
    supervisor.kill()
    supervisor.wait()
    orphan = local.worker_pid(job)
    second = local.submit(MOMENTS)

    local.start_module(SUPERVISOR)

    assert local.wait_for_end(job).state == JobState.SUCCEEDED
    assert local.job(job).lease_token == 1, f"process {orphan} held its lease and was replaced all the same"
    assert local.wait_for_end(second).state == JobState.SUCCEEDED
    first_end, second_start = local.job(job).finished_at, local.job(second).started_at
    assert first_end is not None
    assert second_start is not None
    assert first_end <= second_start, "two jobs ran at once where one is allowed"


def test_supervisor_ends_with_its_parent(local: Deployment) -> None:
    script = "import os, subprocess, sys, time; " + (
        f"p = subprocess.Popen([sys.executable, '-m', '{SUPERVISOR}', '--parent', str(os.getpid())]); "
        "print(p.pid, flush=True); time.sleep(600)"
    )
    with local.log.open("ab") as log:
        parent = subprocess.Popen(
            [sys.executable, "-c", script], env=local.environment, stdout=subprocess.PIPE, stderr=log
        )
    assert parent.stdout is not None
    supervisor = int(parent.stdout.readline())
    local.wait(lambda: "supervisor started" in local.log.read_text())

    parent.kill()
    parent.wait()

    local.wait(lambda: not alive(supervisor))


def test_private_files_of_ended_jobs_are_swept(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    left = local.folder / "private" / job.id / "1" / "checkpoint.safetensors"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"teachers")
    jobs.request_cancel(local.database, job.id)

    local.start_module(SUPERVISOR)

    local.wait(lambda: not private_files(local))


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True
