"""How many requests a key may send: over time, at once, in one process and in several."""

import json
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.api.security import rate_limits
from datalens_service.api.security.rate_limits import RateLimits, RequestLimits, moving_window
from datalens_service.base.errors import RateLimited
from datalens_service.base.settings import Settings
from datalens_service.store.access import keys
from datalens_service.store.access.keys import KeyRequest
from deployments.redis import Redis

# Counts until it is refused, once it is told to begin; prints how often it was not.
PROCESS = """
import sys
from datalens_service.api.security import rate_limits
from datalens_service.base.errors import RateLimited
rate_limits._REDIS_TIMEOUT_SECONDS = 30
limits = rate_limits.RateLimits(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for count in range(1000):
    try:
        limits.count("key", 7)
    except RateLimited:
        print(count)
        break
"""


@pytest.fixture
def redis_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    # On a busy disk it may be late, and then each process would count for itself.
    monkeypatch.setattr(rate_limits, "_REDIS_TIMEOUT_SECONDS", 30)
    server = Redis(tmp_path, "secret")
    server.serve()
    yield server
    server.kill()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the clock that rates are counted by, which stands still."""
    clock = [time.monotonic()]
    monkeypatch.setattr(rate_limits, "monotonic", lambda: clock[0])
    return clock


def allowed(limits: RateLimits, per_minute: int) -> int:
    """Requests until one is refused."""
    for count in range(10_000):
        try:
            limits.count("key", per_minute)
        except RateLimited:
            return count
    raise AssertionError("never refused")


@pytest.mark.parametrize("per_minute", [1, 5, 6, 7, 59, 60, 61, 100, 600, 12_000])
def test_a_window_allows_exactly_the_rate(per_minute: int) -> None:
    window = moving_window(per_minute)
    assert window.amount * 60 == per_minute * window.get_expiry()
    assert window.get_expiry() <= max(10, 60 / math.gcd(per_minute, 60))


def test_a_window_moves_with_time(now: list[float]) -> None:
    limits = RateLimits(None)
    assert allowed(limits, 60) == 10
    now[0] += 4
    with pytest.raises(RateLimited) as refused:
        limits.count("key", 60)
    assert refused.value.extra == {"retry_after": 6}
    limits.count("other", 60)
    now[0] += 6.1
    status = limits.count("key", 60)
    assert status.headers() == {"RateLimit-Policy": '"default";q=60;w=60', "RateLimit": '"default";r=9;t=10'}


def test_whoever_sets_the_clock_of_the_machine_moves_no_window(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = RateLimits(None)
    assert allowed(limits, 60) == 10
    for hours in (3 * 24, -24):
        monkeypatch.setattr(time, "time", lambda hours=hours: 3600.0 * hours)
        assert allowed(limits, 60) == 0
    now[0] += 10.1
    assert allowed(limits, 60) == 10


def test_counting_starts_no_thread_and_forgets_who_is_silent(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[threading.Thread]()
    monkeypatch.setattr(threading.Thread, "start", started.append)
    limits = RateLimits(None)
    for number in range(5):
        limits.count(f"address-{number}", 60)
    assert not started
    now[0] += 61
    limits.count("key", 60)
    assert len(limits._local._sent) == 1


@pytest.mark.usefixtures("now")
def test_so_many_requests_of_a_key_are_served_at_once(services: Services) -> None:
    key, other = (keys.create(services.database, KeyRequest("x", concurrent_requests=count))[0] for count in (2, 1))
    limits = RequestLimits(Settings())
    with limits.acquire(key), limits.acquire(key), limits.acquire(other):
        with pytest.raises(RateLimited, match="being served") as refused, limits.acquire(key):
            pass
        assert refused.value.extra == {"retry_after": 1}
    with limits.acquire(key):
        pass


@pytest.mark.usefixtures("now")
def test_a_refused_request_is_not_in_flight(services: Services) -> None:
    key, _ = keys.create(services.database, KeyRequest("x", requests_per_minute=6, concurrent_requests=1))
    limits = RequestLimits(Settings())
    with limits.acquire(key), pytest.raises(RateLimited, match="being served"), limits.acquire(key):
        pass
    for _ in range(2):
        with pytest.raises(RateLimited, match="a minute"), limits.acquire(key):
            pass


def test_processes_share_one_limit(redis_server: Redis) -> None:
    command = [sys.executable, "-c", PROCESS, redis_server.url]
    with ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(command, stdin=PIPE, stdout=PIPE)) for _ in range(2)]
        # A window of a minute begins with the first request: imports do not count.
        assert [process.stdout.readline() for process in processes if process.stdout] == [b"ready\n"] * 2
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        assert sum(int(process.communicate()[0]) for process in processes) == 7


def test_two_services_share_one_limit(redis_server: Redis, client: TestClient, settings: Settings) -> None:
    plain = client.post("/v1/api-keys", json={"name": "x", "role": "owner", "requests_per_minute": 1}).json()["api_key"]
    shared = settings.model_copy(update={"broker_url": redis_server.url})
    headers = {"Authorization": f"Bearer {plain}"}
    with (
        TestClient(create_app(shared), base_url="http://service", headers=headers) as one,
        TestClient(create_app(shared), base_url="http://service", headers=headers) as other,
    ):
        replies = [service.get("/v1/generators") for service in (one, other)]
    assert [reply.status_code for reply in replies] == [200, 429]
    assert 1 <= int(replies[-1].headers["Retry-After"]) <= 60


@pytest.mark.usefixtures("now")
def test_without_redis_each_process_counts_for_itself_and_says_so_once(
    redis_server: Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    elapsed = [0.0]
    limits = RateLimits(redis_server.url, clock=lambda: elapsed[0])
    # Rates with a window of a minute: Redis forgets by a clock of its own.
    assert allowed(limits, 7) == 7
    redis_server.kill()
    elapsed[0] = 1.0
    assert allowed(limits, 7) == 7
    # A second attempt to reach it, ten seconds later.
    elapsed[0] = 12.0
    assert allowed(limits, 7) == 0
    redis_server.serve()
    assert allowed(limits, 11) == 11
    elapsed[0] = 23.0
    limits.count("key", 13)
    assert messages(capfd) == ["rate limits are per process", "rate limits are shared again"]


@pytest.mark.usefixtures("now")
def test_a_silent_redis_delays_one_request_by_at_most_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rate_limits._REDIS_TIMEOUT_SECONDS <= 0.25
    # It accepts connections and never replies.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        limits = RateLimits(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", clock=lambda: 0.0)
        attempts = count_attempts(limits, monkeypatch)
        assert allowed(limits, 60) == 10
    assert len(attempts) == 1


def count_attempts(limits: RateLimits, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows by one whenever Redis is asked."""
    shared, attempts = limits._shared, list[None]()
    assert shared is not None
    count = shared.count
    monkeypatch.setattr(shared, "count", lambda *parts: attempts.append(None) or count(*parts))
    return attempts


def messages(capfd: pytest.CaptureFixture[str]) -> list[Any]:
    lines = [line for line in capfd.readouterr().err.splitlines() if "rate limits" in line]
    assert not any("secret" in line for line in lines)
    return [json.loads(line)["event"] for line in lines]


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize("broker_url", [None, "amqp://host", "sentinel://host"])
def test_other_brokers_are_not_used(broker_url: str | None) -> None:
    assert allowed(RateLimits(broker_url), 60) == 10


def send_wrong_keys(client: TestClient, count: int, **headers: str) -> list[int]:
    wrong = {"Authorization": f"Bearer dlk_{'a' * 36}_00000000", **headers}
    return [client.get("/v1/jobs", headers=wrong).status_code for _ in range(count)]


def test_wrong_keys_of_one_address_are_held_up_and_right_ones_are_not(now: list[float], client: TestClient) -> None:
    assert send_wrong_keys(client, 30) == [401] * 10 + [429] * 20
    refused = client.get("/v1/jobs", headers={"Authorization": "Bearer nonsense"})
    assert (refused.status_code, refused.json()["code"]) == (429, "rate-limited")
    assert 1 <= int(refused.headers["Retry-After"]) <= 10
    assert "wrong keys" in refused.json()["detail"]
    assert client.get("/v1/jobs").status_code == 200
    assert client.post("/sign-in", data={"key": "dlk_wrong"}).status_code == 429
    now[0] += 11
    assert send_wrong_keys(client, 1) == [401]
    assert client.post("/sign-in", data={"key": "dlk_wrong"}).status_code == 401


def test_addresses_are_those_behind_trusted_proxies(settings: Settings, now: list[float]) -> None:
    trusting = settings.model_copy(update={"trusted_proxies": "127.0.0.1 10.0.0.0/8"})
    with TestClient(create_app(trusting), client=("127.0.0.1", 5000)) as proxied:
        assert send_wrong_keys(proxied, 12, **{"X-Forwarded-For": "203.0.113.7"})[-1] == 429
        assert send_wrong_keys(proxied, 1, **{"X-Forwarded-For": "203.0.113.8"}) == [401]
        # What a client claims in front of its own address is believed by nobody.
        assert send_wrong_keys(proxied, 1, **{"X-Forwarded-For": "198.51.100.1, 203.0.113.7, 10.0.0.2"}) == [429]
        network = [f"2001:db8:1:2::{number}" for number in range(11)]
        assert [send_wrong_keys(proxied, 1, **{"X-Forwarded-For": one})[0] for one in network][-2:] == [401, 429]
    with TestClient(create_app(trusting), client=("192.0.2.1", 5000)) as direct:
        sent = [send_wrong_keys(direct, 1, **{"X-Forwarded-For": f"203.0.113.{one}"})[0] for one in range(11)]
        assert sent == [401] * 10 + [429]


@pytest.mark.redis
def test_hosts_whose_clocks_differ_share_one_window(redis_server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    here, ahead = RateLimits(redis_server.url), RateLimits(redis_server.url)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert [here.count("key", 60).remaining for _ in range(5)] == [9, 8, 7, 6, 5]
    monkeypatch.setattr(time, "time", lambda: 3 * 86400.0)
    assert allowed(ahead, 60) == 5
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert allowed(here, 60) == 0
