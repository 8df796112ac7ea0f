"""One job, one process: fencing, and what is left alone."""

from __future__ import annotations

import threading

import pytest
from deployment import MOMENTS, Deployment

from datalens_service.store import leases
from datalens_service.store.jobs import JobState
from workers.process import Exit
from workers.run_job import run_job

RUN_JOB = "workers.run_job"


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FAILED])
def test_held_or_ended_job_is_left_alone(local: Deployment, state: JobState) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)
    if state.terminal:
        leases.finish(local.database, lease, state, {"type": "x"})

    assert run_job(local.settings, job.id, threading.Event()) == Exit.ENDED

    assert (local.job(job).state, local.job(job).lease_token) == (state, lease.token)
    assert not local.stored_steps(job)


def test_unknown_job_is_nobodys_business(local: Deployment) -> None:
    assert local.start_module(RUN_JOB, "job_unknown").wait() == Exit.ENDED
    assert "there is no such job" in local.log.read_text()
