"""The same jobs, delivered by Celery through a real Redis."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from celery import Celery

from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import PATIENCE, QUICK, VOTES, Deployment, lamps

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


def send(deployment: Deployment, *job_ids: str) -> None:
    """As the API does: by name, without importing the workers."""
    with Celery(broker=deployment.changes["DATALENS_BROKER_URL"], set_as_current=False) as producer:
        for job_id in job_ids:
            producer.send_task("datalens.run_job", [job_id], queue=deployment.changes["DATALENS_QUEUE"])


class Payload:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def send_pickle(deployment: Deployment, payload: Payload) -> None:
    with Celery(broker=deployment.changes["DATALENS_BROKER_URL"], set_as_current=False) as producer:
        queue = deployment.changes["DATALENS_QUEUE"]
        producer.send_task("datalens.run_job", [payload], queue=queue, serializer="pickle")


def test_job_runs_once_however_often_it_is_delivered(celery: Deployment) -> None:
    job = celery.submit(QUICK)
    messages = [job.id, job.id, job.id, "job_unknown", "--help"]
    executed = celery.folder / "executed"
    send_pickle(celery, Payload(executed))
    send(celery, *messages)

    start_worker(celery, "one")
    start_worker(celery, "two")

    ended = celery.wait_for_end(job)
    assert (ended.state, ended.error) == (JobState.SUCCEEDED, None)
    celery.wait(lambda: celery.log.read_text().count("succeeded in") >= len(messages))
    assert celery.job(job).lease_token == 1
    celery.assert_balanced(job)
    # A message that could carry code was refused, and did not stop the worker.
    assert "ContentDisallowed" in celery.log.read_text()
    assert not executed.exists()


def test_job_survives_the_loss_of_message_worker_and_process(celery: Deployment) -> None:
    # Nobody sent a message. The worker finds the job in the database.
    job = celery.submit(VOTES)
    with celery.held(4):
        first = start_worker(celery, "first")
        celery.wait_for_steps(job, 5)

        # A worker that is asked to end gives its job back. Its message is gone, so the next one has to find it, too.
        first.terminate()
        assert first.wait(PATIENCE) == 0
        assert (celery.job(job).state, celery.job(job).attempts) == (JobState.QUEUED, 0)
        start_worker(celery, "second")
        celery.wait(lambda: celery.latest_token(job) == 2)

        os.kill(celery.worker_pid(job), signal.SIGKILL)

    ended = celery.wait_for_end(job)
    assert (ended.state, ended.lease_token) == (JobState.SUCCEEDED, 3)
    celery.assert_balanced(job)


def test_no_job_waits_behind_a_long_one_while_a_worker_is_idle(celery: Deployment) -> None:
    many_steps = {**VOTES, "method": {**VOTES["method"], "steps": 5000}}
    long, short = celery.submit(many_steps), celery.submit(QUICK, celery.upload(lamps(1)))
    send(celery, long.id)
    start_worker(celery, "one")
    celery.wait_for_steps(long, 1)
    send(celery, short.id)
    start_worker(celery, "two")

    assert celery.wait_for_end(short).state == JobState.SUCCEEDED
    assert celery.job(long).state == JobState.RUNNING


def test_worker_refuses_a_database_it_cannot_trust(celery: Deployment) -> None:
    celery.changes["DATALENS_DATABASE_URL"] = f"sqlite:///{celery.folder}/missing/datalens.db"

    assert start_worker(celery).wait(PATIENCE) == 1
    assert "worker cannot start" in celery.log.read_text()
