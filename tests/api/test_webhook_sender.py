"""The sender of a running service, and where it may send: not to blocks of the IANA registries of special addresses."""

import ipaddress
import random
import socket
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from api_builders import bearer
from starlette.testclient import TestClient
from test_webhooks import Receiver, deliveries

from datalens_service.adapters import webhook_sender
from datalens_service.adapters.webhook_sender import WebhookSender, is_public_address, may_be_public
from datalens_service.api.main import create_app
from datalens_service.base.settings import Settings
from datalens_service.store.access import tenants, webhooks
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import DEFAULT_TENANT

IPV4 = """
0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29
192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24
192.88.99.0/24 192.88.99.2/32 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4
240.0.0.0/4 255.255.255.255/32
"""
IPV6 = """
::1/128 ::/128 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:1::1/128
2001:1::2/128 2001:1::3/128 2001:2::/48 2001:3::/32 2001:4:112::/48 2001:10::/28 2001:20::/28 2001:30::/28 2001:db8::/32
2002::/16 2620:4f:8000::/48 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8 ::/96
"""
PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0
192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 2001:200:: 2001:4860:4860::8888 2003:: 2606:4700::
2a00:: 3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff
"""
WRAPPED = ("10.1.2.3", "127.0.0.1", "169.254.169.254", "8.8.8.8")


@pytest.mark.parametrize("block", [*IPV4.split(), *IPV6.split()])
def test_no_address_of_a_special_block_is_public(block: str) -> None:
    network, rng = ipaddress.ip_network(block), random.Random(block)  # noqa: S311 (choice of examples)
    inside = [network[0], network[-1], *(network[rng.randrange(network.num_addresses)] for _ in range(50))]
    assert not any(is_public_address(str(address)) for address in inside)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_addresses_beside_the_special_blocks_are_public(address: str) -> None:
    assert is_public_address(address)
    assert may_be_public(address)


@pytest.mark.parametrize("inner", WRAPPED)
def test_an_address_that_wraps_another_is_not_public(inner: str) -> None:
    number = int(ipaddress.IPv4Address(inner))
    compatible, mapped, nat64 = number, 0xFFFF << 32 | number, 0x64_FF9B << 96 | number
    local_nat64, six_to_four = 0x64_FF9B_0001 << 80 | number, 0x2002 << 112 | number << 80
    teredo = 0x2001_0000 << 96 | number << 64 | number ^ 0xFFFF_FFFF
    for wrapping in (compatible, mapped, nat64, local_nat64, six_to_four, teredo):
        assert not is_public_address(str(ipaddress.IPv6Address(wrapping)))


@pytest.mark.parametrize("name", ["example.org", "a-b.c_d.example.org.", "xn--bcher-kva.example.org", "1.2.3.4.com"])
def test_names_that_may_be_resolved_are_kept(name: str) -> None:
    assert may_be_public(name)


def test_a_sender_with_nothing_to_send_stops_at_once(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it stopped when it would have looked for messages again."""
    monkeypatch.setattr(webhook_sender, "_POLL_SECONDS", 600.0)
    stopping = threading.Event()
    sender = WebhookSender(sqlite_database, Settings(data_dir=tmp_path), stopping)
    sender.start()
    stopping.set()
    sender.join()
    assert not sender._thread.is_alive()


def test_a_running_service_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sender, "_TIMEOUT_SECONDS", 120.0)
    receiver = Receiver()
    settings = Settings(data_dir=tmp_path / "data", webhooks_to_private_addresses=True)
    with TestClient(create_app(settings), base_url="http://service") as client:
        services = client.app.state.services
        client.headers.update(bearer(client))
        hook = client.post("/v1/webhooks", json={"url": receiver.url}).json()
        client.post(f"/v1/webhooks/{hook['webhook']['id']}:test")
        while deliveries(client, hook)[0]["state"] != "delivered":
            services.stopping.wait(0.05)
    receiver.server.shutdown()
    receiver.server.server_close()
    assert len(receiver.got) == 1


def test_a_receiver_that_is_silent_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages wait for each other, however many they are, and so do those of a tenant with many such receivers."""
    monkeypatch.setattr(webhook_sender, "_TIMEOUT_SECONDS", 240.0)
    receiver = Receiver()
    settings = Settings(data_dir=tmp_path / "data", webhooks_to_private_addresses=True)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        TestClient(create_app(settings), base_url="http://service") as client,
    ):
        services = client.app.state.services
        client.headers.update(bearer(client))
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for _ in range(3):
            hook = client.post("/v1/webhooks", json={"url": address}).json()
            for _ in range(40):
                webhooks.send_test(services.database, hook["webhook"]["id"])
        heard = client.post("/v1/webhooks", json={"url": receiver.url}).json()
        for _ in range(3):
            webhooks.send_test(services.database, heard["webhook"]["id"])
        while len(receiver.got) < 3:
            services.stopping.wait(0.05)
        # One to each of the silent ones.
        assert count_connections(silent) == 3
    receiver.server.shutdown()
    receiver.server.server_close()


def count_connections(server: socket.socket) -> int:
    """Those that wait to be taken; taking them ends what their senders wait for."""
    server.setblocking(False)
    taken = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            taken += 1
    return taken


def test_a_tenant_with_many_silent_receivers_leaves_room_for_others(sqlite_database: Database) -> None:
    other = tenants.create(sqlite_database, "other")
    many = [webhooks.create(sqlite_database, DEFAULT_TENANT, "https://example.org/", ())[0].id for _ in range(40)]
    few = [webhooks.create(sqlite_database, other.id, "https://example.org/", ())[0].id for _ in range(2)]
    for hook in (*many, *few, *many, *few):
        webhooks.send_test(sqlite_database, hook)
    busy: dict[str, str] = {}
    while claimed := webhooks.claim_due(sqlite_database, 32 - len(busy), busy=busy):
        taken = {message.delivery.webhook_id: message.tenant_id for message in claimed}
        assert len(taken) == len(claimed)
        assert not taken.keys() & busy.keys()
        busy |= taken
    assert Counter(busy.values()) == {DEFAULT_TENANT: 8, other.id: 2}
