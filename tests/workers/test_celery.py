"""The same jobs, delivered by Celery through a real Redis."""

from __future__ import annotations

import os
import signal
import subprocess
from uuid import uuid4

import pytest
from celery import Celery
from deployment import MOMENTS, VOTES, Deployment, lamps
from test_run_job import assert_balanced

from datalens_service.store.jobs import JobState

pytestmark = pytest.mark.redis

WORKER = ("-A", "workers.app", "worker", "--concurrency", "1", "--without-gossip", "--without-mingle", "-l", "info")


@pytest.fixture
def celery(local: Deployment, redis_port: int) -> Deployment:
    """A deployment whose executor is Celery, with a queue of its own."""
    local.changes["DATALENS_EXECUTOR"] = "celery"
    local.changes["DATALENS_BROKER_URL"] = f"redis://127.0.0.1:{redis_port}/0"
    local.changes["DATALENS_QUEUE"] = f"queue-{uuid4().hex}"
    return local


def start_worker(deployment: Deployment, name: str = "worker") -> subprocess.Popen[bytes]:
    return deployment.start_module("celery", *WORKER, "-n", f"{name}@%h")


def send(deployment: Deployment, job_id: str) -> None:
    """As the API does: by name, without importing the workers."""
    with Celery(broker=deployment.changes["DATALENS_BROKER_URL"]) as producer:
        producer.send_task("datalens.run_job", [job_id], queue=deployment.changes["DATALENS_QUEUE"])


def test_delivered_job_runs_once_however_often_it_is_delivered(celery: Deployment) -> None:
    job = celery.submit(MOMENTS)
    for _ in range(3):
        send(celery, job.id)
    send(celery, "job_unknown")
    send(celery, "--help")

    start_worker(celery, "one")
    start_worker(celery, "two")

    ended = celery.wait_for_end(job)
    assert (ended.state, ended.error, ended.lease_token) == (JobState.SUCCEEDED, None, 1)
    assert_balanced(celery, job)
    # All messages were taken and none of them started it again.
    celery.wait(lambda: celery.log.read_text().count("succeeded in") >= 5)
    assert celery.job(job).lease_token == 1


def test_job_whose_message_was_lost_runs(celery: Deployment) -> None:
    job = celery.submit(MOMENTS)

    start_worker(celery)

    assert celery.wait_for_end(job).state == JobState.SUCCEEDED


def test_killed_job_process_is_replaced(celery: Deployment) -> None:
    job = celery.submit(VOTES)
    send(celery, job.id)
    start_worker(celery)
    celery.wait_for_steps(job, 5)

    os.kill(celery.worker_pid(job), signal.SIGKILL)

    ended = celery.wait_for_end(job)
    assert (ended.state, ended.lease_token) == (JobState.SUCCEEDED, 2)
    assert_balanced(celery, job)


def test_stopped_worker_gives_its_job_back_and_the_next_one_resumes_it(celery: Deployment) -> None:
    job = celery.submit(VOTES)
    send(celery, job.id)
    first = start_worker(celery)
    celery.wait_for_steps(job, 5)

    first.terminate()

    assert first.wait(30) == 0
    assert celery.job(job).state == JobState.QUEUED
    start_worker(celery)
    assert celery.wait_for_end(job).state == JobState.SUCCEEDED
    assert_balanced(celery, job)


def test_no_job_waits_behind_a_long_one_while_a_worker_is_idle(celery: Deployment) -> None:
    long, short = celery.submit(VOTES), celery.submit(MOMENTS, celery.upload(lamps(1)))
    send(celery, long.id)
    start_worker(celery, "one")
    celery.wait_for_steps(long, 1)
    send(celery, short.id)
    start_worker(celery, "two")

    assert celery.wait_for_end(short).state == JobState.SUCCEEDED
    assert celery.job(long).state == JobState.RUNNING


def test_worker_refuses_a_database_it_cannot_trust(celery: Deployment) -> None:
    celery.changes["DATALENS_DATABASE_URL"] = f"sqlite:///{celery.folder}/missing/datalens.db"

    assert start_worker(celery).wait(30) == 1
    assert "worker cannot start" in celery.log.read_text()
