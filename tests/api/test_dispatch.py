"""Reaching Celery workers: one message per job, never a failed request."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from api_builders import bearer, send_images, training
from starlette.testclient import TestClient

from certificates import issue_certificate
from datalens_service.adapters.dispatch import TASK, CeleryDispatcher, Dispatcher
from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.api.security.rate_limits import RateLimits
from datalens_service.base.settings import Settings
from datalens_service.store.jobs import leases
from deployments.redis import Redis

QUEUE = "default"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a private Redis."""
    server = Redis(tmp_path_factory.mktemp("redis"), "secret")
    server.serve()
    yield server.url
    server.kill()


@contextmanager
def served(settings: Settings, broker: str) -> Iterator[tuple[TestClient, str]]:
    """A service with that broker, and a data set of it."""
    celery = settings.model_copy(update={"executor": "celery", "broker_url": broker, "queue": QUEUE})
    with TestClient(create_app(celery)) as client:
        client.headers.update(bearer(client))
        yield client, send_images(client).json()["id"]


def sent(broker: str, queue: str = QUEUE) -> list[str]:
    """Ids of the jobs whose messages wait in the broker, oldest first."""
    messages = [json.loads(raw) for raw in redis.Redis.from_url(broker).lrange(queue, 0, -1)]
    assert all(message["headers"]["task"] == TASK for message in messages)
    return [json.loads(message["headers"]["argsrepr"].replace("'", '"'))[0] for message in messages][::-1]


@pytest.mark.redis
@pytest.mark.parametrize(("device", "queue"), [("auto", QUEUE), ("cpu", "cpu"), ("gpu", "gpu")])
def test_a_job_its_resumption_and_a_copy_wait_in_the_queue_of_their_device(
    settings: Settings, broker: str, device: str, queue: str
) -> None:
    redis.Redis.from_url(broker).flushall()
    with served(settings, broker) as (client, dataset_id):
        assert client.get("/readyz").json()["status"] == "ok"
        job = client.post("/v1/jobs", json=training(dataset_id, device=device)).json()
        assert leases.next_queued(client.app.state.services.database, queue=queue) == (job["id"],)
        assert leases.next_queued(client.app.state.services.database, queue="another") == ()
        assert sent(broker, queue) == [job["id"]]
        assert client.post(f"/v1/jobs/{job['id']}:pause").json()["state"] == "paused"
        assert client.post(f"/v1/jobs/{job['id']}:resume").json()["state"] == "queued"
        copy = client.post(f"/v1/jobs/{job['id']}:clone").json()
        elsewhere = client.post(f"/v1/jobs/{job['id']}:clone", json={"device": "auto"}).json()
    waiting = [*sent(broker, queue), *(sent(broker) if queue != QUEUE else ())]
    assert waiting == [job["id"], job["id"], copy["id"], elsewhere["id"]]


def test_submission_survives_a_broker_that_is_away(settings: Settings, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = f"redis://127.0.0.1:{closed.getsockname()[1]}/0"
        with served(settings, away) as (client, dataset_id):
            reply = client.post("/v1/jobs", json=training(dataset_id))
            assert (reply.status_code, reply.json()["state"]) == (202, "queued")
            client.app.state.services.surroundings.look()
            ready = client.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
            assert list(ready.json()["degraded"]) == ["broker"]
            assert 'datalens_degraded{part="broker"} 1.0' in client.get("/metrics").text


def test_readiness_does_not_wait_for_a_broker_that_is_frozen(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def freeze(_: Dispatcher) -> None:
        asked.set()
        answer.wait(120)

    monkeypatch.setattr(Dispatcher, "check", freeze)
    with TestClient(create_app(settings)) as client:
        assert asked.wait(120)
        assert client.get("/readyz").status_code == 200
        answer.set()


@pytest.mark.redis
def test_a_frozen_broker_is_asked_once_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a limit of requests and by a message; no request waits for more than one answer that does not come."""
    server = Redis(tmp_path, "secret")
    server.serve()
    sender, limits = CeleryDispatcher(server.url, QUEUE), RateLimits(server.url)
    asked: list[str] = []
    send, connect = sender._celery.send_task, redis.connection.AbstractConnection.connect
    monkeypatch.setattr(sender._celery, "send_task", lambda *_, **__: (asked.append("message"), send(*_, **__)))
    monkeypatch.setattr(
        redis.connection.AbstractConnection, "connect", lambda self: (asked.append("limit"), connect(self))
    )
    with server.frozen():
        for _ in range(3):
            limits.count("key", 1000)
        assert asked == ["limit"]
        for number in range(3):
            sender.submitted(f"job_{number}")
        assert asked.count("message") == 1
    server.kill()
    sender.stop()


def test_local_needs_no_broker(services: Services) -> None:
    assert type(services.dispatcher) is Dispatcher


@pytest.mark.redis
def test_the_certificate_of_the_broker_is_verified(settings: Settings, tmp_path: Path) -> None:
    issue_certificate(tmp_path / "redis.pem")
    server = Redis(tmp_path, "secret", tmp_path / "redis.pem")
    server.serve()
    try:
        for query, said in (
            ("", "cannot be verified"),
            (f"?ssl_ca_certs={tmp_path / 'redis.pem'}", ""),
            ("?ssl_cert_reqs=none", "takes any certificate"),
        ):
            fields = settings.model_dump() | {"executor": "celery", "broker_url": server.url + query}
            with TestClient(create_app(Settings.model_validate(fields))) as client:
                client.app.state.services.surroundings.look()
                found = client.get("/readyz").json()["degraded"].get("broker", "")
                assert (said in found, bool(found)) == (True, bool(said)), query
    finally:
        server.kill()


@pytest.mark.redis
@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (["CONFIG SET maxmemory 1"], "Redis is full"),
        (["REPLICAOF 127.0.0.1 1"], "is a replica"),
        (["CONFIG SET requirepass other"], "refuses the password"),
        (["ACL SETUSER default -set"], "may not write"),
        (["CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"], ""),
    ],
)
def test_a_redis_that_answers_and_takes_nothing_says_why(
    settings: Settings, tmp_path: Path, commands: list[str], said: str
) -> None:
    server = Redis(tmp_path, "secret")
    server.serve()
    try:
        with redis.Redis.from_url(server.url) as operator:
            for command in commands:
                operator.execute_command(*command.split(" "))
        fields = settings.model_dump() | {"executor": "celery", "broker_url": server.url}
        with TestClient(create_app(Settings.model_validate(fields))) as client:
            client.app.state.services.surroundings.look()
            found = client.get("/readyz").json()["degraded"].get("broker", "")
            assert (said in found, bool(found)) == (True, bool(said))
    finally:
        server.kill()
