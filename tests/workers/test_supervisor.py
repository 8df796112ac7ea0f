"""The local supervisor with real processes."""

import os
import re
import signal
import stat
import sys

import pytest

from datalens_service.base.errors import WorkerUnavailable
from datalens_service.services.waiting import check_workers
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.attendance import read_attendance
from datalens_service.store.jobs.jobs import JobState
from datalens_service.workers.process.recover_jobs import Recovery
from deployments.deployment import QUICK, VOTES, Deployment, lamps, stop_between_transactions
from processes import alive, parent_of

SUPERVISOR = "datalens_service.workers.process.supervisor"


def test_hanging_process_is_replaced_and_the_job_can_be_cancelled(local: Deployment) -> None:
    job = local.submit(VOTES)
    with local.held(4):
        local.start_warm(SUPERVISOR)
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


def test_job_whose_process_always_dies_ends(local: Deployment) -> None:
    job = local.submit(VOTES, max_attempts=2)
    with local.held(0, after="charge"):
        local.start_warm(SUPERVISOR)
        for attempt in (1, 2):
            local.wait(lambda count=attempt: len(local.charged_steps(job)) == count)
            os.kill(local.worker_pid(job), signal.SIGKILL)
        ended = local.wait_for_end(job)

    assert ended.error is not None
    assert (ended.state, ended.error["type"]) == (JobState.FAILED, "worker-lost")
    assert re.search(r"needs about [\d.]+ GiB .* has [\d.]+ GiB", ended.error["detail"])
    assert (ended.lease_token, ended.reserved_units) == (2, 0)
    local.wait(lambda: not local.private_folders())


def test_worker_whose_processes_cannot_start_leaves_jobs_to_others(local: Deployment) -> None:
    torch = local.folder / "broken" / "torch" / "__init__.py"
    torch.parent.mkdir(parents=True)
    torch.write_text("raise ImportError('No GPU, no torch.')\n")
    local.changes["PYTHONPATH"] = os.pathsep.join([str(torch.parent.parent), *sys.path])
    job = local.submit(QUICK, max_attempts=1)

    local.start_module(SUPERVISOR)

    local.wait(lambda: local.log.read_text().count("no job process can start") >= 2)
    assert (local.job(job).state, local.job(job).lease_token) == (JobState.QUEUED, 0)


def test_supervisor_says_that_it_lives_and_that_torch_is_missing(local: Deployment) -> None:
    hidden = local.folder / "hidden" / "sitecustomize.py"
    hidden.parent.mkdir()
    hidden.write_text("import sys; sys.modules['torch'] = None\n")
    local.changes["PYTHONPATH"] = os.pathsep.join([str(hidden.parent), *sys.path])
    supervisor = local.start_module(SUPERVISOR)
    local.wait(lambda: bool(read_attendance(local.database).alive(None)))
    (worker,) = read_attendance(local.database).alive(None)
    assert "PyTorch is not installed" in str(worker.trouble)
    assert check_complains(local)

    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait()
    assert read_attendance(local.database).alive(None) == ()
    assert "No worker has been alive since" in check_complains(local)


def check_complains(local: Deployment) -> str:
    with pytest.raises(WorkerUnavailable) as complaint:
        check_workers(local.database, started=float("-inf"))
    return str(complaint.value)


def test_job_outlives_the_process_that_forked_it(local: Deployment) -> None:
    job = local.submit(VOTES)
    with local.held(4):
        local.start_warm(SUPERVISOR)
        local.wait_for_steps(job, 5)
        os.kill(parent_of(local.worker_pid(job)), signal.SIGKILL)
        after = local.submit(QUICK, local.upload(lamps(1)))

    assert (local.wait_for_end(job).state, local.job(job).lease_token) == (JobState.SUCCEEDED, 1)
    assert local.wait_for_end(after).state == JobState.SUCCEEDED
    local.assert_balanced(job)


def test_job_of_a_killed_supervisor_goes_on_and_its_successor_counts_it(local: Deployment) -> None:
    job = local.submit(VOTES)
    with local.held(4):
        first = local.start_warm(SUPERVISOR)
        local.wait_for_steps(job, 5)
        first.kill()
        first.wait()
        waiting = local.submit(QUICK, local.upload(lamps(1)))
        local.start_warm(SUPERVISOR)
        local.wait(lambda: local.log.read_text().count("supervisor started") == 2)

    assert local.wait_for_end(waiting).state == JobState.SUCCEEDED
    ended, began = local.job(job), local.job(waiting).started_at
    assert (ended.state, ended.lease_token) == (JobState.SUCCEEDED, 1)
    assert ended.finished_at is not None
    assert began is not None
    assert ended.finished_at <= began, "two jobs ran at once where one is allowed"
    local.assert_balanced(job)


def test_private_files_of_ended_jobs_are_swept_and_of_others_kept(local: Deployment) -> None:
    ended, waiting = (local.submit(QUICK, local.upload(lamps(seed))) for seed in (1, 2))
    for job in (ended, waiting):
        left = local.folder / "private" / job.id / "1" / "checkpoint.safetensors"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"teachers")
    jobs.request_cancel(local.database, ended.id)

    Recovery(local.database, local.settings).run()

    assert {folder.name for folder in local.private_folders()} == {waiting.id, "1"}
