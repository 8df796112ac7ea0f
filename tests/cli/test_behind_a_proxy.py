"""Real proxies, set up as docs/deploy.md says, in front of `datalens serve`."""

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from typer.testing import Result

from cli.service import RunningService
from datalens_service.client import Client
from deployments.reverse_proxy import ROOT_PATH, ReverseProxy


def without_prefix(lines: str) -> str:
    """nginx takes the prefix away, and tells nobody."""
    return lines.replace("127.0.0.1:8000;", "127.0.0.1:8000/;").replace(
        "X-Forwarded-Prefix /datalens", 'X-Forwarded-Prefix ""'
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that knows its root path."""
    running = RunningService(tmp_path_factory.mktemp("told") / "data", options=("--root-path", ROOT_PATH))
    yield running
    running.stop()


@pytest.fixture(params=["nginx", "nginx takes the prefix away", "caddy"])
def proxied(
    request: pytest.FixtureRequest, service: RunningService, told: RunningService, tmp_path: Path
) -> Iterator[tuple[RunningService, httpx2.Client]]:
    """A service and a client of the proxy in front of it."""
    program, *change = request.param.split(maxsplit=1)
    behind = told if change else service
    proxy = ReverseProxy(program, tmp_path, behind.port, without_prefix if change else str)
    trusted = ssl.create_default_context(cafile=str(proxy.certificate))
    with httpx2.Client(verify=trusted, base_url=proxy.url, timeout=240) as http:
        yield behind, http
    proxy.stop()


def test_a_browser_signs_in_below_the_prefix(proxied: tuple[RunningService, httpx2.Client]) -> None:
    service, http = proxied
    leads = http.get(str(http.base_url).rstrip("/")).headers["location"]
    assert httpx2.URL(leads).path == f"{ROOT_PATH}/"
    assert http.get("/").headers["location"] == f"{ROOT_PATH}/sign-in?next=/"
    page = http.get("/sign-in").text
    for asset in re.findall(r'(?:src|href)="(/[^"]*static[^"]*)"', page):
        assert http.get(httpx2.URL(str(http.base_url)).join(asset)).status_code == 200
    answer = http.post("/sign-in", data={"key": service.api_key})
    assert answer.headers["location"] == f"{ROOT_PATH}/"
    assert answer.headers["set-cookie"].startswith("__Secure-")
    assert {"Secure", f"Path={ROOT_PATH}"} <= set(answer.headers["set-cookie"].split("; "))
    assert "strict-transport-security" in answer.headers
    assert http.get("/").status_code == 200


def test_an_upload_is_where_the_answer_says(proxied: tuple[RunningService, httpx2.Client]) -> None:
    service, http = proxied
    http.headers["Authorization"] = f"Bearer {service.api_key}"
    made = http.post("/v1/uploads", headers={"Upload-Length": "5", "Tus-Resumable": "1.0.0"})
    place = httpx2.URL(str(http.base_url)).join(made.headers["location"])
    assert place.path.startswith(f"{ROOT_PATH}/v1/uploads/")
    sent = http.patch(
        place,
        content=b"bytes",
        headers={"Upload-Offset": "0", "Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"},
    )
    assert (sent.status_code, sent.headers["upload-offset"]) == (204, "5")


def test_the_service_says_its_whole_address_and_clients_take_it(told: RunningService, npz: Path) -> None:
    assert told.url == f"http://127.0.0.1:{told.port}{ROOT_PATH}"
    with Client(told.url, told.api_key) as client:
        dataset = client.upload_dataset(npz, epsilon=2.0)
        assert [item.id for item in client.datasets()] == [dataset.id]
    probe = httpx2.get(f"http://127.0.0.1:{told.port}/livez", trust_env=False, timeout=240)
    assert probe.status_code == 200


@pytest.mark.parametrize("path", ["datalens", "/datalens/", "//datalens", "/..", "/a b"])
def test_a_root_path_that_is_none_is_refused(datalens: Callable[..., Result], path: str) -> None:
    ended = datalens("serve", "--root-path", path)
    assert ended.exit_code == 2
    said = " ".join(ended.stderr.replace("│", " ").split())
    assert ("'--root-path'" in said, "like /datalens or /lab/datalens" in said) == (True, True)


@pytest.mark.parametrize("program", ["nginx", "caddy"])
def test_a_head_that_does_not_come_is_given_up_by_the_proxy(
    program: str, service: RunningService, tmp_path: Path
) -> None:
    proxy = ReverseProxy(
        program, tmp_path, service.port, lambda lines: re.sub(r"(?<=header)(\S*) 10s", r"\1 1s", lines)
    )
    address = httpx2.URL(proxy.url)
    trusted = ssl.create_default_context(cafile=str(proxy.certificate))
    with (
        socket.create_connection((address.host, address.port), timeout=240) as plain,
        trusted.wrap_socket(plain, server_hostname=address.host) as connection,
    ):
        connection.sendall(b"GET /datalens/livez HTTP/1.1\r\nHost: localhost\r\n")
        assert not connection.recv(65536).startswith(b"HTTP/1.1 200")
    proxy.stop()
