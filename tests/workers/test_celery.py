"""The same jobs, delivered by Celery through a real Redis."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis
from celery import Celery

from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import PATIENCE, QUICK, VOTES, Deployment, Process, lamps
from deployments.redis import Redis

pytestmark = pytest.mark.redis

WORKER = (
    "-A",
    "datalens_service.workers.app",
    "worker",
    "--concurrency",
    "1",
    "--without-gossip",
    "--without-mingle",
    "-l",
    "info",
)

COMPLAINT = "messages cannot be received, jobs are still taken"


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


def fill(server: redis.Redis, _queue: str) -> None:
    """Have it refuse whatever takes memory, as it does when it is full."""
    server.config_set("maxmemory", 1)


def occupy(server: redis.Redis, queue: str) -> None:
    """Put a value of another type where the queue should be."""
    server.set(queue, "no list")


def garble(server: redis.Redis, queue: str) -> None:
    """Send what is no message."""
    for text in ("no JSON", "[]", "{}", b"\xff"):
        server.lpush(queue, text)


@pytest.mark.parametrize(("spoil", "running"), [(fill, False), (occupy, False), (garble, True)])
def test_a_broker_in_disorder_ends_neither_worker_nor_jobs(
    celery: Deployment, spoil: Callable[[redis.Redis, str], None], running: bool
) -> None:
    queue = celery.changes["DATALENS_QUEUE"]
    with redis.Redis.from_url(celery.changes["DATALENS_BROKER_URL"]) as server:
        if not running:
            spoil(server, queue)
        worker = start_worker(celery)
        if running:
            celery.wait(lambda: "ready." in celery.log.read_text())
            spoil(server, queue)
        try:
            celery.wait(lambda: worker.poll() is not None or COMPLAINT in celery.log.read_text())
            assert worker.poll() is None
            job = celery.submit(QUICK)
            assert celery.wait_for_end(job).state == JobState.SUCCEEDED
        finally:
            server.config_set("maxmemory", 0)
            server.delete(queue)
        send(celery, job.id)
        celery.wait(lambda: "succeeded in" in celery.log.read_text())
    assert worker.poll() is None


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
