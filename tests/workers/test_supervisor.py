"""The local supervisor with real processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

from datalens_service.store.jobs import jobs, pausing
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import PATIENCE, QUICK, VOTES, Deployment, lamps, stop_between_transactions
from processes import alive
from workers.process.recover_jobs import run_maintenance

SUPERVISOR = "workers.process.supervisor"


def test_killed_job_process_is_replaced_before_its_lease_runs_out_and_resumes(either: Deployment) -> None:
    either.changes["DATALENS_LEASE_SECONDS"] = "3600"
    job = either.submit(VOTES)
    with either.held(10, after="charge"):
        either.start_module(SUPERVISOR)
        either.wait(lambda: 10 in either.charged_steps(job))
        before = either.stored_steps(job)
        os.kill(either.worker_pid(job), signal.SIGKILL)

    either.wait(lambda: either.job(job).lease_token == 2)
    assert either.wait_for_end(job).state == JobState.SUCCEEDED
    after = either.stored_steps(job)
    assert before.items() <= after.items(), "a stored sum was drawn again"
    # Everything that was planned is charged. One step was lost: charged, and its sum not stored.
    assert either.job(job).charged_units == job.reserved_units
    assert len(after) == VOTES["method"]["steps"] - 1
    either.assert_balanced(job)


def test_hanging_process_is_replaced_and_the_job_can_be_cancelled(local: Deployment) -> None:
    job = local.submit(VOTES)
    with local.held(4):
        local.start_module(SUPERVISOR)
        local.wait_for_steps(job, 5)
        hanging = local.worker_pid(job)

        stop_between_transactions(hanging, local.database)
        local.lose_lease(job)

        local.wait(lambda: local.latest_token(job) == 2)
        assert not alive(hanging)
        folders = [local.folder / "private", *local.private_folders()]
        assert [folder.name for folder in folders] == ["private", job.id, "2"]
        assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in folders)

        jobs.request_cancel(local.database, job.id)

    ended = local.wait_for_end(job)
    assert ended.state == JobState.CANCELLED
    assert 0 < ended.charged_units < job.reserved_units
    local.wait(lambda: not local.private_folders())
    local.assert_balanced(job)


def test_paused_job_keeps_what_it_has_and_goes_on_when_resumed(either: Deployment) -> None:
    job = either.submit(VOTES)
    with either.held(4):
        either.start_module(SUPERVISOR)
        either.wait_for_steps(job, 5)
        pausing.request_pause(either.database, job.id)

    either.wait(lambda: either.job(job).state == JobState.PAUSED)
    paused, before = either.job(job), either.stored_steps(job)
    assert paused.charged_units + paused.reserved_units == job.reserved_units
    assert [folder.name for folder in either.private_folders()] == [job.id, str(paused.lease_token)]

    pausing.resume(either.database, job.id)

    assert either.wait_for_end(job).state == JobState.SUCCEEDED
    assert before.items() <= either.stored_steps(job).items(), "a stored sum was drawn again"
    # A pause falls between two steps: nothing was charged twice.
    assert len(either.stored_steps(job)) == VOTES["method"]["steps"]
    assert either.job(job).charged_units == job.reserved_units
    either.assert_balanced(job)


def test_job_whose_process_always_dies_ends(local: Deployment) -> None:
    # Stands for a lack of memory. Only the job process imports torch, so only that is hit.
    deadly = local.folder / "deadly" / "torch" / "__init__.py"
    deadly.parent.mkdir(parents=True)
    deadly.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    local.changes["PYTHONPATH"] = os.pathsep.join([str(deadly.parent.parent), *sys.path])
    job = local.submit(VOTES, max_attempts=2)

    local.start_module(SUPERVISOR)

    ended = local.wait_for_end(job)
    assert ended.error is not None
    assert (ended.state, ended.error["type"]) == (JobState.FAILED, "worker-lost")
    assert (ended.lease_token, ended.charged_units, ended.reserved_units) == (2, 0, 0)
    local.wait(lambda: not local.private_folders())


def test_two_supervisors_start_each_job_once(local: Deployment) -> None:
    submitted = [local.submit(QUICK, local.upload(lamps(seed))) for seed in (1, 2)]

    local.start_module(SUPERVISOR)
    local.start_module(SUPERVISOR)

    for job in submitted:
        ended = local.wait_for_end(job)
        assert (ended.state, ended.error, ended.lease_token) == (JobState.SUCCEEDED, None, 1)
        local.assert_balanced(job)
    assert str(local.folder) not in local.log.read_text(), "the log says where the records lie"


def test_supervisors_come_and_go(local: Deployment) -> None:
    job = local.submit(VOTES)
    with local.held(4):
        first = local.start_module(SUPERVISOR)
        local.wait_for_steps(job, 5)

        # One that is asked to end gives its jobs back, which is not held against them.
        first.terminate()
        assert first.wait(PATIENCE) == 0
        assert (local.job(job).state, local.job(job).attempts) == (JobState.QUEUED, 0)

        # One that is killed leaves its job running; its successor lets it, and counts it.
        second = local.start_module(SUPERVISOR)
        local.wait(lambda: local.latest_token(job) == 2)
        second.kill()
        second.wait()
        waiting = local.submit(QUICK, local.upload(lamps(1)))
        local.start_module(SUPERVISOR)
        local.wait(lambda: local.log.read_text().count("supervisor started") == 3)

    assert local.wait_for_end(waiting).state == JobState.SUCCEEDED
    ended, began = local.job(job), local.job(waiting).started_at
    assert (ended.state, ended.lease_token) == (JobState.SUCCEEDED, 2)
    assert ended.finished_at is not None
    assert began is not None
    assert ended.finished_at <= began, "two jobs ran at once where one is allowed"
    local.assert_balanced(job)


def test_supervisor_ends_with_its_parent(local: Deployment) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        f"command = [sys.executable, '-m', '{SUPERVISOR}', '--parent', str(os.getpid())]\n"
        "print(subprocess.Popen(command).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with local.log.open("ab") as log:
        parent = subprocess.Popen(
            [sys.executable, "-c", script], env=local.environment, stdout=subprocess.PIPE, stderr=log
        )
    assert parent.stdout is not None
    supervisor = int(parent.stdout.readline())
    local.wait(lambda: "supervisor started" in local.log.read_text())

    parent.kill()
    parent.communicate()

    local.wait(lambda: not alive(supervisor))
    assert "parent process is gone" in local.log.read_text()


def test_private_files_of_ended_jobs_are_swept_and_of_others_kept(local: Deployment) -> None:
    ended, waiting = (local.submit(QUICK, local.upload(lamps(seed))) for seed in (1, 2))
    for job in (ended, waiting):
        left = local.folder / "private" / job.id / "1" / "checkpoint.safetensors"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"teachers")
    jobs.request_cancel(local.database, ended.id)

    run_maintenance(local.database, local.settings)

    assert {folder.name for folder in local.private_folders()} == {waiting.id, "1"}
