"""How much a key may send: windows, requests in flight, and several API processes that share one limit."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis as RedisClient
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from api.deps import Services
from api.main import create_app
from api.security import request_counts
from api.security.rate_limits import RequestLimits, window_of
from api.security.request_counts import ProcessCounter, SharedCounter, request_counter
from datalens_service.errors import RateLimited
from datalens_service.settings import Settings
from datalens_service.store.access import keys
from datalens_service.store.access.keys import ApiKey, KeyRequest
from deployments.redis import Redis, redis_is_installed

PASSWORD = "ratepassword"  # noqa: S105 (of a server that lives as long as a test)

needs_redis = pytest.mark.skipif(not redis_is_installed(), reason="redis-server is not installed")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    folder = tmp_path / "redis"
    folder.mkdir()
    server = Redis(folder, PASSWORD)
    server.serve()
    yield server
    server.kill()


@pytest.fixture
def key(services: Services) -> ApiKey:
    return keys.create(services.database, KeyRequest("x", requests_per_minute=60, concurrent_requests=2))[0]


def accepted(limits: RequestLimits, key: ApiKey, requests: int) -> int:
    """How many of so many requests, one after the other, are let through."""
    count = 0
    for _ in range(requests):
        try:
            with limits.slot(key):
                count += 1
        except RateLimited:
            pass
    return count


@pytest.mark.parametrize("per_minute", [1, 5, 6, 7, 59, 60, 61, 90, 12_000])
def test_a_window_has_exactly_the_rate_that_was_promised(per_minute: int) -> None:
    window = window_of(per_minute)
    assert window.amount * 60 == per_minute * window.get_expiry()
    assert window.get_expiry() <= 60
    if per_minute % 6 == 0:
        assert window.get_expiry() == 10


def test_a_window_moves_with_time_and_so_many_are_served_at_once(key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    limits = RequestLimits(Settings())
    with limits.slot(key), limits.slot(key), pytest.raises(RateLimited, match="being served"), limits.slot(key):
        pass
    now[0] += 4
    assert accepted(limits, key, 20) == 8
    with pytest.raises(RateLimited, match="60 requests a minute") as refused, limits.slot(key):
        pass
    assert refused.value.extra == {"retry_after": 6}
    now[0] += 6.1
    with limits.slot(key) as allowance:
        assert (allowance.remaining, allowance.seconds_to_reset) == (1, 4)


def test_a_refused_request_is_not_in_flight(key: ApiKey) -> None:
    limits = RequestLimits(Settings())
    assert accepted(limits, key, 30) == 10
    with pytest.raises(RateLimited, match="requests a minute"), limits.slot(key):
        pass


@pytest.mark.parametrize("url", [None, "", "amqp://broker", "sqs://"])
def test_without_redis_each_process_counts_for_itself(url: str | None) -> None:
    assert isinstance(request_counter(url), ProcessCounter)


@needs_redis
@pytest.mark.redis
def test_two_api_processes_share_one_limit(settings: Settings, redis: Redis) -> None:
    settings = settings.model_copy(update={"broker_url": redis.url})
    with (
        TestClient(create_app(settings), base_url="http://service") as one,
        TestClient(create_app(settings), base_url="http://service") as other,
    ):
        request = KeyRequest("x", requests_per_minute=60)
        headers = {"Authorization": f"Bearer {keys.create(one.app.state.services.database, request)[1]}"}
        replies = [(one, other)[number % 2].get("/v1/generators", headers=headers) for number in range(14)]
    assert [reply.status_code for reply in replies] == [200] * 10 + [429] * 4
    assert replies[0].headers["RateLimit-Policy"] == '"default";q=60;w=60'
    assert [reply.headers["RateLimit"].split(";")[1] for reply in replies[:3]] == ["r=9", "r=8", "r=7"]
    assert replies[-1].json()["code"] == "rate-limited"
    assert 1 <= int(replies[-1].headers["Retry-After"]) <= 10


@needs_redis
@pytest.mark.redis
def test_what_redis_holds_ends_by_itself(redis: Redis, key: ApiKey) -> None:
    accepted(RequestLimits(Settings(broker_url=redis.url)), key, 12)
    with RedisClient.from_url(redis.url) as client:
        [name] = client.keys()
        assert key.id in name.decode()
        assert 0 < client.ttl(name) <= 10
        assert client.llen(name) == 10


@needs_redis
@pytest.mark.redis
def test_without_a_reachable_redis_each_process_counts_for_itself(redis: Redis, key: ApiKey) -> None:
    now = [0.0]
    limits, other = (RequestLimits(Settings(), SharedCounter(redis.url, clock=lambda: now[0])) for _ in range(2))
    assert accepted(limits, key, 10) == 10
    assert accepted(other, key, 1) == 0
    redis.kill()
    with capture_logs() as lines:
        # Neither unlimited, nor closed.
        assert (accepted(limits, key, 20), accepted(other, key, 20)) == (10, 10)
        now[0] += request_counts.RETRY_SECONDS
        assert accepted(limits, key, 5) == 0
    assert [line["event"] for line in lines] == ["rate_limits_counted_per_process"] * 2
    assert PASSWORD not in str(lines)
    redis.serve()
    now[0] += request_counts.RETRY_SECONDS
    with capture_logs() as lines:
        accepted(limits, key, 1), accepted(other, key, 1)
    assert [line["event"] for line in lines] == ["rate_limits_shared_again"] * 2


def test_a_silent_redis_delays_one_request_in_a_while(key: ApiKey) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        limits = RequestLimits(Settings(), SharedCounter(f"redis://127.0.0.1:{silent.getsockname()[1]}/0"))
        began = time.monotonic()
        assert accepted(limits, key, 10) == 10
    assert time.monotonic() - began < 2
