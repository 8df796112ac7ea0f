"""The same jobs, delivered by Celery through a real Redis."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from celery import Celery

from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import PATIENCE, QUICK, VOTES, Deployment, Process, lamps
from deployments.redis import Redis

pytestmark = pytest.mark.redis

WORKER = ("-A", "workers.app", "worker", "--concurrency", "1", "--without-gossip", "--without-mingle", "-l", "info")


@pytest.fixture(scope="session")
def redis_port() -> Iterator[int]:
    """Port of a Redis server of our own."""
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(Path(folder), password="")
        server.serve()
        yield server.port
        server.kill()


@pytest.fixture
def celery(local: Deployment, redis_port: int) -> Deployment:
    """A deployment whose executor is Celery, with a queue of its own."""
    local.changes["DATALENS_EXECUTOR"] = "celery"
    local.changes["DATALENS_BROKER_URL"] = f"redis://127.0.0.1:{redis_port}/0"
    local.changes["DATALENS_QUEUE"] = f"queue-{uuid4().hex}"
    return local


def start_worker(deployment: Deployment, name: str = "worker") -> Process:
    return deployment.start_warm("celery", *WORKER, "-n", f"{name}@%h")


def send(deployment: Deployment, *job_ids: object, serializer: str = "json") -> None:
    """As the API does: by name, without importing the workers."""
    with Celery(broker=deployment.changes["DATALENS_BROKER_URL"], set_as_current=False) as producer:
        for job_id in job_ids:
            queue = deployment.changes["DATALENS_QUEUE"]
            producer.send_task("datalens.run_job", [job_id], queue=queue, serializer=serializer)


class Payload:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def test_messages_that_are_no_jobs_stop_no_worker_and_run_no_code(celery: Deployment) -> None:
    messages = ["job_unknown", "--help"]
    executed = celery.folder / "executed"
    send(celery, Payload(executed), serializer="pickle")
    send(celery, *messages)

    start_worker(celery)

    celery.wait(lambda: celery.log.read_text().count("succeeded in") >= len(messages))
    assert "ContentDisallowed" in celery.log.read_text()
    assert not executed.exists()


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
