"""Webhooks: what is sent, how it is signed, when it is repeated, and where it must not go."""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from api_builders import claimed, training
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from starlette.testclient import TestClient

from datalens_service.adapters import webhook_sender
from datalens_service.adapters.webhook_sender import attempt, check_address
from datalens_service.api.deps import Services
from datalens_service.base.errors import InvalidInput
from datalens_service.store.access import webhooks
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState

URL = "https://example.org/hook"
LATER = timedelta(days=30)


class Receiver:
    """An address that keeps what it gets and answers as told."""

    def __init__(self) -> None:
        self.status = 204
        self.got: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers.items()), body))
                self.send_response(receiver.status)
                if receiver.status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?for=me"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    # A thread of this process, which may be slow to answer.
    monkeypatch.setattr(webhook_sender, "_TIMEOUT_SECONDS", 120.0)
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture(autouse=True)
def _no_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages stay where they are until a test sends them."""
    monkeypatch.setattr(webhook_sender.WebhookSender, "_round", lambda *_: False)


def made(client: TestClient, **members: Any) -> dict[str, Any]:
    reply = client.post("/v1/webhooks", json={"url": URL, **members})
    assert reply.status_code == 201, reply.text
    found: dict[str, Any] = reply.json()
    return found


def on_trial(client: TestClient, services: Services, url: str = URL) -> tuple[dict[str, Any], dict[str, Any]]:
    """A webhook, which may lead to this machine, and its test message."""
    hook = made(client)
    webhooks.change(services.database, hook["webhook"]["id"], url=url)
    return hook, client.post(f"/v1/webhooks/{hook['webhook']['id']}:test").json()


def _send(services: Services, now: datetime | None = None) -> None:
    for due in webhooks.claim_due(services.database, now=now):
        status, error = attempt(due, allow_private=True)
        webhooks.settle(services.database, due.delivery.id, status=status, error=error, now=now)


def deliveries(client: TestClient, hook: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/webhooks/{hook['webhook']['id']}/deliveries").json()["items"]
    return found


def test_events_that_are_wanted_become_thin_messages(client: TestClient, services: Services, dataset_id: str) -> None:
    hook = made(client, events=["job.created", "job.cancelled"])
    other = made(client)
    job_id = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    lease = claimed(services, job_id)
    leases.progress(services.database, lease, "training", 1, 3)
    leases.finish(services.database, lease, JobState.CANCELLED)
    found = deliveries(client, hook)
    assert [item["event"] for item in found] == ["job.cancelled", "job.created"]
    assert [item["event"] for item in deliveries(client, other)] == ["job.cancelled"]
    payload = found[0]["payload"]
    assert payload.keys() == {"type", "timestamp", "data"}
    assert payload["data"] == {"job_id": job_id, "dataset_id": dataset_id, "state": "cancelled"}
    assert datetime.fromisoformat(payload["timestamp"]).tzinfo is not None


def test_a_message_is_signed_as_standard_webhooks_asks(
    client: TestClient, services: Services, receiver: Receiver
) -> None:
    hook, sent = on_trial(client, services, receiver.url)
    [claimed] = webhooks.claim_due(services.database)
    assert attempt(claimed, allow_private=True) == (204, None)
    [(headers, body)] = receiver.got
    assert Webhook(hook["secret"]).verify(body, headers) == sent["payload"]
    assert {name.lower(): value for name, value in headers.items()}["webhook-id"] == sent["id"]
    with pytest.raises(WebhookVerificationError):
        Webhook(hook["secret"]).verify(body + b" ", headers)


@pytest.mark.parametrize("status", [500, 404, 302])
def test_a_message_that_failed_is_repeated_with_growing_pauses_and_given_up(
    client: TestClient, services: Services, receiver: Receiver, status: int
) -> None:
    hook, _ = on_trial(client, services, receiver.url)
    receiver.status = status
    now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    pauses = []
    for _ in webhooks.BACK_OFF_SECONDS:
        _send(services, now)
        following = datetime.fromisoformat(deliveries(client, hook)[0]["next_attempt_at"])
        pauses.append(round((following - now).total_seconds()))
        now = following
    assert tuple(pauses) == webhooks.BACK_OFF_SECONDS == tuple(sorted(webhooks.BACK_OFF_SECONDS))
    _send(services, now)
    [shown] = deliveries(client, hook)
    assert (shown["state"], shown["attempts"], shown["status"]) == ("failed", len(pauses) + 1, status)
    assert len({dict(headers)["webhook-id"] for headers, _ in receiver.got}) == 1
    # By hand it is sent once more.
    receiver.status = 204
    path = f"/v1/webhooks/{hook['webhook']['id']}/deliveries/{shown['id']}:redeliver"
    assert client.post(path).status_code == 202
    _send(services)
    assert deliveries(client, hook)[0]["state"] == "delivered"
    assert webhooks.claim_due(services.database, now=datetime.now(UTC) + LATER) == ()


def test_a_claimed_message_is_left_alone_by_others(client: TestClient, services: Services) -> None:
    on_trial(client, services)
    assert len(webhooks.claim_due(services.database)) == 1
    assert webhooks.claim_due(services.database) == ()
    assert len(webhooks.claim_due(services.database, now=datetime.now(UTC) + timedelta(seconds=61))) == 1


def resolver(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> list[str]:
    """Answers each question for a name by the next of `answers`; the names it was asked for."""
    asked: list[str] = []

    def resolve(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers[len(asked) - 1]]

    monkeypatch.setattr(webhook_sender.socket, "getaddrinfo", resolve)
    return asked


def sent_to(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> list[str]:
    """Addresses to which connections are opened; all of them lead to the receiver."""
    connected: list[str] = []

    def lead(address: tuple[str, int], timeout: float) -> socket.socket:
        connected.append(address[0])
        connection = socket.socket()
        connection.settimeout(timeout)
        connection.connect(("127.0.0.1", receiver.server.server_port))
        return connection

    monkeypatch.setattr(webhook_sender.socket, "create_connection", lead)
    monkeypatch.setattr(webhook_sender, "_secure", lambda _: False)
    return connected


@pytest.mark.parametrize("answer", [["10.1.2.3"], ["93.184.216.34", "::1"], ["64:ff9b::a01:203"], ["192.0.0.8"]])
def test_a_name_that_stands_for_an_address_inside_is_refused(
    client: TestClient, services: Services, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, answer: list[str]
) -> None:
    on_trial(client, services)
    [claimed] = webhooks.claim_due(services.database)
    resolver(monkeypatch, answer)
    connected = sent_to(monkeypatch, receiver)
    assert attempt(claimed, allow_private=False) == (None, "The host has a private address.")
    assert (connected, receiver.got) == ([], [])


@pytest.mark.parametrize("status", [204, 302])
def test_a_name_is_resolved_once_and_a_redirect_is_not_followed(
    client: TestClient, services: Services, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A second question would be answered by an address inside, and so would be the place that a redirect names."""
    on_trial(client, services)
    [claimed] = webhooks.claim_due(services.database)
    receiver.status = status
    asked = resolver(monkeypatch, ["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1"])
    connected = sent_to(monkeypatch, receiver)
    assert attempt(claimed, allow_private=False)[0] == status
    assert (asked, connected) == (["example.org"], ["93.184.216.34"])
    assert len(receiver.got) == 1


UNUSABLE = """
http://example.org/ ftp://example.org/ https://user:secret@example.org/ https:///path https://example.org:99999/
https://127.0.0.1/ https://[::1]/ https://10.0.0.1/ https://192.168.1.1/ https://169.254.169.254/latest/meta-data
https://100.64.0.1/ https://0.0.0.0/ https://[::ffff:127.0.0.1]/ https://[2002:7f00:1::]/ https://[64:ff9b::7f00:1]/
https://[fe80::1]/ https://224.0.0.1/ https://localhost/ https://localhost./ https://api.localhost/
https://2130706433/ https://0x7f000001/ https://0x7f.1/ https://0177.0.0.1/ https://127.1/ https://127.0.0.1./
https://intranet/ https://printer.local/ https://db.internal/ https://a_name_of_a_host_with%2e/ https://-.org/
https://exämple.org/ nonsense
"""


def test_an_answer_that_never_ends_is_cut_off(
    client: TestClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight receivers of this kind would keep the messages of all tenants for themselves."""
    monkeypatch.setattr(webhook_sender, "_TIMEOUT_SECONDS", 0.5)
    hook, done = made(client), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:

        def drip() -> None:
            with server.accept()[0] as connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 ")
                while not done.wait(0.1):
                    connection.sendall(b"2")

        pool.submit(drip)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        webhooks.change(services.database, hook["webhook"]["id"], url=url)
        client.post(f"/v1/webhooks/{hook['webhook']['id']}:test")
        [claimed] = webhooks.claim_due(services.database)
        status, error = attempt(claimed, allow_private=True)
        done.set()
    assert status is None
    assert str(error).startswith("No answer: ")


def test_addresses_that_cannot_be_used_are_refused(client: TestClient) -> None:
    for url in UNUSABLE.split():
        reply = client.post("/v1/webhooks", json={"url": url})
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), url


def test_the_operator_can_allow_private_addresses() -> None:
    assert check_address("http://127.0.0.1:9/x", allow_private=True).port == 9
    with pytest.raises(InvalidInput):
        check_address("ftp://127.0.0.1/", allow_private=True)


def test_a_disabled_webhook_is_told_nothing(client: TestClient, services: Services, dataset_id: str) -> None:
    """Neither of what happens, nor of what happened before and was not sent yet."""
    hook = made(client, events=["job.created"])
    path = f"/v1/webhooks/{hook['webhook']['id']}"
    client.post("/v1/jobs", json=training(dataset_id))
    [waiting] = deliveries(client, hook)
    assert client.patch(path, json={"enabled": False}).json()["enabled"] is False
    client.post("/v1/jobs", json=training(dataset_id))
    assert deliveries(client, hook) == [waiting]
    assert webhooks.claim_due(services.database) == ()
    trial = client.post(f"{path}:test").json()
    assert [due.delivery.id for due in webhooks.claim_due(services.database)] == [trial["id"]]
    client.patch(path, json={"enabled": True})
    assert [due.delivery.id for due in webhooks.claim_due(services.database)] == [waiting["id"]]
    assert client.get(path).json()["events"] == ["job.created"]
    assert client.patch(path, json={"url": "https://10.0.0.1/"}).status_code == 422


def test_a_removed_webhook_takes_its_messages_along(client: TestClient, services: Services) -> None:
    hook, _ = on_trial(client, services)
    assert client.delete(f"/v1/webhooks/{hook['webhook']['id']}").status_code == 204
    assert client.get("/v1/webhooks").json()["items"] == []
    assert webhooks.claim_due(services.database, now=datetime.now(UTC) + LATER) == ()


def test_the_secret_is_shown_once(client: TestClient) -> None:
    hook = made(client)
    assert hook["secret"].startswith("whsec_")
    for path in ("/v1/webhooks", f"/v1/webhooks/{hook['webhook']['id']}"):
        assert hook["secret"] not in client.get(path).text
    assert json.dumps(hook).count(hook["secret"]) == 1
