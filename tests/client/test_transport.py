"""What the client makes of answers that are not the expected ones.

Which errors are retried, after which delay, and until when.
"""

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from datalens_service.client import Client, ClientError, ServiceUnreachable, is_loopback, retry_policy
from datalens_service.client.retry_policy import RetryPolicy
from tests.client.fake_service import FakeService, server

__all__ = ["server"]

PROBLEM = {
    "type": "/problems/privacy-budget-exceeded",
    "code": "privacy-budget-exceeded",
    "title": "Privacy budget exceeded",
    "status": 409,
    "detail": "Ask for less.",
    "budget": {"epsilon_remaining": 0.25},
}


def test_problem_document_becomes_an_error_with_all_its_members(server: FakeService) -> None:
    server.status, server.body = 409, json.dumps(PROBLEM).encode()
    with Client(server.url, "dlk_x") as client, pytest.raises(ClientError) as caught:
        client.get_job("job_1")
    error = caught.value
    assert (error.slug, error.title, error.detail) == (PROBLEM["code"], PROBLEM["title"], PROBLEM["detail"])
    assert error.status == 409
    assert error.problem["budget"] == {"epsilon_remaining": 0.25}


def test_the_key_goes_into_the_header_and_nowhere_else(server: FakeService) -> None:
    server.body = b"{}"
    with Client(server.url, "dlk_secret") as client, pytest.raises(ClientError) as caught:
        client.get_job("job_1")
    [(path, headers, _)] = server.requests
    assert headers["Authorization"] == "Bearer dlk_secret"
    assert "dlk_secret" not in path + str(caught.value) + repr(client)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>another server</html>"),
        (200, b"[]"),
        (200, b'{"id": "job_1"}'),
        (404, b"<html>not here</html>"),
        (502, b'{"message": "a proxy"}'),
        (307, b""),
    ],
)
def test_an_answer_of_something_else_is_named_as_such(server: FakeService, status: int, body: bytes) -> None:
    server.status, server.body = status, body
    with Client(server.url) as client, pytest.raises(ClientError) as caught:
        client.get_job("job_1")
    assert caught.value.slug == "unexpected-answer"
    assert caught.value.status == status
    assert not isinstance(caught.value, ServiceUnreachable)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"items": [{}], "has_more": false, "next_cursor": null}'])
@pytest.mark.parametrize("listed", [Client.jobs, Client.datasets, Client.audits, Client.classifiers])
def test_a_list_of_something_else_is_named_as_such(server: FakeService, listed: Any, body: bytes) -> None:
    server.body = body
    with Client(server.url) as client, pytest.raises(ClientError, match="did not answer like this version"):
        list(listed(client))


def test_nobody_there_is_service_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with Client(url) as client, pytest.raises(ServiceUnreachable, match="datalens serve") as caught:
            client.get_job("job_1")
    assert caught.value.slug == "service-unreachable"
    assert caught.value.status is None


def test_loopback_goes_past_the_proxy_of_the_environment(server: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    server.status, server.body = 409, json.dumps(PROBLEM).encode()
    with Client(server.url) as client, pytest.raises(ClientError) as caught:
        client.get_job("job_1")
    assert caught.value.status == 409


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://127.8.9.1", True),
        ("http://[::1]:8000", True),
        ("https://localhost", True),
        ("http://10.0.0.1", False),
        ("https://datalens.example", False),
        ("https://localhost.example", False),
    ],
)
def test_loopback(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://host", "http://", "localhost"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ClientError) as caught:
        Client(url)
    assert caught.value.slug == "invalid-url"


def test_a_download_that_breaks_off_leaves_no_file(server: FakeService, tmp_path: Path) -> None:
    server.body, server.headers = b"half", {"Content-Length": "1000"}
    path = tmp_path / "synthetic.npz"
    path.write_bytes(b"from before")
    with Client(server.url) as client, pytest.raises(ServiceUnreachable):
        client.download("job_1", path)
    assert [file.name for file in tmp_path.iterdir()] == ["synthetic.npz"]
    assert path.read_bytes() == b"from before"


def test_the_earlier_name_of_an_argument_warns_and_is_sent_by_its_name(server: FakeService, tmp_path: Path) -> None:
    with Client(server.url) as client:
        with pytest.warns(DeprecationWarning, match="n is called synthetic_images"):
            client.download("job_1", tmp_path / "a.npz", n=5)  # type: ignore[call-arg]
        with pytest.warns(DeprecationWarning, match="n is called synthetic_images"):
            client.download_bundle("job_1", tmp_path / "a.zip", n=5)  # type: ignore[call-arg]
    assert ["synthetic_images=5" in path for path, _, _ in server.requests] == [True, True]


def test_a_refused_download_says_why_and_leaves_no_file(server: FakeService, tmp_path: Path) -> None:
    server.status, server.body = 409, json.dumps(PROBLEM).encode()
    with Client(server.url) as client, pytest.raises(ClientError, match=r"Ask for less\."):
        client.download("job_1", tmp_path / "synthetic.npz")
    assert list(tmp_path.iterdir()) == []


def test_waiting_gives_up_when_nobody_answers_for_long() -> None:
    client = Client("http://127.0.0.1:9")
    with client, pytest.raises(ServiceUnreachable):
        client.wait("job_1", interval=0.01, patience=0.05)


def test_events_of_something_else_and_streams_that_bring_none_are_not_asked_for_in_a_loop(server: FakeService) -> None:
    server.body = b"<html>another server</html>"
    with Client(server.url) as client:
        with pytest.raises(ClientError, match="did not answer like this version"):
            list(client.events("job_1"))
        server.body, server.headers = b"", {"Content-Type": "text/event-stream; charset=utf-8"}
        with pytest.raises(ServiceUnreachable, match="stream of events"):
            list(client.events("job_1", patience=0.1))
    assert len(server.requests) <= 3


UNREACHABLE = ServiceUnreachable("no response")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds on the policy's clock alone, as its only element: event loops of servers in this process have theirs."""
    seconds = [0.0]
    monkeypatch.setattr(retry_policy, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


def test_delays_double_up_to_five_seconds(clock: list[float]):
    policy = RetryPolicy(initial_delay=1)
    assert [policy.choose_delay(UNREACHABLE) for _ in range(5)] == [1, 2, 4, 5, 5]


def test_the_deadline_counts_from_the_last_success(clock: list[float]):
    policy = RetryPolicy(timeout=10)
    clock[0] = 9
    policy.reset()
    clock[0] = 19
    assert policy.choose_delay(UNREACHABLE) == 0.25
    clock[0] = 19.5
    with pytest.raises(ServiceUnreachable):
        policy.choose_delay(UNREACHABLE)


@pytest.mark.parametrize("slug", ["upload-offset-mismatch", "upload-locked", "checksum-mismatch", "store-unavailable"])
def test_a_problem_that_may_pass_is_retried(clock: list[float], slug: str):
    assert RetryPolicy().choose_delay(ClientError(slug, "", "")) == 0.25


def test_another_problem_is_raised_at_once(clock: list[float]):
    with pytest.raises(ClientError, match="Ask for less"):
        RetryPolicy().choose_delay(ClientError("privacy-budget-exceeded", "", "Ask for less."))
