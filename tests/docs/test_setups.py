"""TLS, PgBouncer, quotas and retention are set up as the pages say, word by word, around a service that then works.

Each test takes the lines from the page and puts in what a page leaves to its reader: hosts, passwords, places of files.
A page that says something else is tried as it says it then.
"""

import json
import os
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from certificates import issue_certificate
from datalens_service.client import Client, ClientError
from deployments.fork_servers import warm_environment
from deployments.pgbouncer import PgBouncer
from deployments.postgresql import Cluster, roomy_memory
from deployments.redis import Redis
from ports import free_port
from tests.cli.service import DATALENS, RunningService
from tests.docs.commands import FENCE, ROOT, SPAN

WORD = "canary0password"
PATIENCE_SECONDS = 240.0
_LOOKED_SECONDS = 3.0
"""A service looks at its surroundings as soon as it runs."""

QUICK = {"method": "moments", "epsilon": 0.1, "synthetic_images": 64, "evaluation": {"enabled": False}}


def read_section(page: str, heading: str) -> str:
    """The text of a page below a heading, up to the next one of its level."""
    below = rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)"
    found = re.search(below, (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {heading!r}"
    return found[1]


def read_block(section: str, language: str) -> str:
    """The one block of a section in a language."""
    [block] = [found["text"] for found in FENCE.finditer(section) if found["language"] == language]
    return block


def read_spans(text: str) -> list[str]:
    """Code within sentences."""
    return [" ".join(span.split()) for span in SPAN.findall(FENCE.sub("", text))]


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A small private data set."""
    import numpy as np

    rng, path = np.random.default_rng(), tmp_path / "private.npz"
    np.savez(path, images=rng.integers(0, 256, (200, 8, 8), dtype=np.uint8), labels=np.arange(200) % 2)
    return path


def train(service: RunningService, private: Path) -> None:
    """Upload a data set and finish a job on it."""
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(private, epsilon=1.0, confirm_classes=True)
        job = client.wait(client.submit(dataset.id, QUICK, accept_low_utility=True).id, interval=0.2)
        assert (job.state, job.error) == ("succeeded", None)


def degraded(service: RunningService, part: str = "") -> dict[str, str]:
    """What the service says of its surroundings once it says something of a part; or, if none is named, soon."""
    until = time.monotonic() + (PATIENCE_SECONDS if part else _LOOKED_SECONDS)
    while True:
        told: dict[str, str] = httpx2.get(f"{service.url}/readyz", timeout=60).json()["degraded"]
        if part in told or time.monotonic() > until:
            return told
        time.sleep(0.5)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Cluster]:
    """A PostgreSQL with TLS by an authority of its own, with role and database of the pages, and passwords."""
    issue_certificate(tmp_path / "ca.pem")
    with tempfile.TemporaryDirectory(prefix="dlpg", dir=roomy_memory()) as folder:
        cluster = Cluster(Path(folder), tmp_path / "ca.pem")
        cluster.start()
        try:
            cluster.execute(f"CREATE ROLE datalens LOGIN PASSWORD '{WORD}'")
            cluster.execute("CREATE DATABASE datalens OWNER datalens")
            cluster.ask_for_passwords()
            yield cluster
        finally:
            cluster.stop()


def assign(line: str) -> tuple[str, str]:
    """Name and value of an assignment of a page."""
    name, _, value = line.strip().partition("=")
    return name, value


@pytest.mark.postgres
def test_tls_to_the_database(guarded: Cluster, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = read_section("docs/deploy.md", "TLS to the database")
    name, url = assign(read_block(section, "ini"))
    here = {"PASSWORD": WORD, "postgres.example.org": f"127.0.0.1:{guarded.port}"}
    for placeholder, value in here.items():
        assert placeholder in url
        url = url.replace(placeholder, value)
    [authority] = re.findall(r"/etc/\S+\.pem", url)

    issue_certificate(tmp_path / "another.pem")
    monkeypatch.setenv(name, url.replace(authority, str(tmp_path / "another.pem")))
    assert "certificate" in refuse_to_start(tmp_path / "refused")

    monkeypatch.setenv(name, url.replace(authority, str(tmp_path / "ca.pem")))
    service = RunningService(tmp_path / "data")
    try:
        train(service, private)
        assert "database" not in degraded(service)
    finally:
        service.stop()


@pytest.mark.postgres
def test_what_takes_any_certificate_is_told_and_what_needs_none_is_not(
    guarded: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = read_section("docs/deploy.md", "TLS to the database")
    without = [span for span in read_spans(section) if span.startswith("?sslmode=")]
    careless = [f"?sslmode={span}" for span in read_spans(section) if span in ("allow", "prefer", "require")]
    assert (without, len(careless)) == (["?sslmode=disable"], 3)
    for query in (*without, careless[-1]):
        monkeypatch.setenv("DATALENS_DATABASE_URL", f"{guarded.tls_url('datalens', f'datalens:{WORD}')}{query}")
        service = RunningService(tmp_path / query.partition("=")[2])
        try:
            told = degraded(service, "database" if query in careless else "").get("database", "")
            assert ("takes any certificate" in told) == (query in careless), query
        finally:
            service.stop()


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program as a fork of a process that has imported it."""
    environment = os.environ | warm_environment()
    return subprocess.run(
        [*DATALENS, *arguments], env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def refuse_to_start(folder: Path) -> str:
    """What `datalens serve` says when it does not start."""
    ended = run_program("serve", "--port", str(free_port()), "--data-dir", str(folder), "--json")
    assert ended.returncode != 0, ended.stdout
    return ended.stdout + ended.stderr


@pytest.mark.redis
def test_tls_to_the_broker(tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/operations.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith("| `DATALENS_BROKER_URL`")]
    _name, plain, _celery, scheme, verified, unverified, _readyz = read_spans(row)
    [authority] = re.findall(r"/\S+\.pem", verified)
    issue_certificate(tmp_path / "ca.pem")
    issue_certificate(tmp_path / "another.pem")
    server = Redis(tmp_path, WORD, tmp_path / "ca.pem")
    server.serve()
    where = plain.replace("redis://", scheme).replace("password", WORD).replace("host:6379", f"127.0.0.1:{server.port}")
    try:
        for query, part in (
            (verified.replace(authority, str(tmp_path / "ca.pem")), ""),
            (verified.replace(authority, str(tmp_path / "another.pem")), "certificate"),
            ("", "certificate"),
            (unverified, "takes any certificate"),
        ):
            monkeypatch.setenv("DATALENS_EXECUTOR", "celery")
            monkeypatch.setenv("DATALENS_BROKER_URL", where + query)
            service = RunningService(tmp_path / f"data-{len(query)}")
            try:
                told = degraded(service, "broker" if part else "").get("broker", "")
                assert (part in told) if part else told == "", (query, told)
            finally:
                service.stop()
    finally:
        server.kill()


@pytest.mark.postgres
def test_pgbouncer(guarded: Cluster, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = read_section("docs/deploy.md", "PgBouncer")
    databases, settings = read_block(section, "ini").split("[pgbouncer]")
    [line] = [one for one in databases.splitlines() if "host=" in one]
    assert "host=postgres.example.org" in line
    line = line.replace("host=postgres.example.org", f"host={guarded.folder} port={guarded.port}")
    pooler = PgBouncer(guarded.folder, {"datalens": WORD}, tuple(settings.split("\n")), line)
    pooler.serve()
    monkeypatch.setenv("DATALENS_DATABASE_URL", pooler.url("datalens", "datalens", WORD))
    try:
        assert "lock_timeout is not in force" in refuse_to_start(tmp_path / "refused")
        for statement in read_block(section, "sql").strip().splitlines():
            guarded.execute(statement)
        pooler.kill()
        pooler.serve()
        service = RunningService(tmp_path / "data")
        try:
            train(service, private)
            assert degraded(service) == {}
        finally:
            service.stop()
    finally:
        pooler.kill()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    running = RunningService(tmp_path / "data")
    yield running
    running.stop()


def type_command(service: RunningService, command: str) -> Any:
    """Type a command of a page on the machine of the service; what it answers as JSON."""
    words = command.split()
    assert words[0] == "datalens"
    ended = run_program(*words[1:], "--data-dir", str(service.data_dir), "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


def test_quotas(service: RunningService, private: Path) -> None:
    section = read_section("docs/operations.md", "Tenants")
    spans = [span.replace("NAME", "house") for span in read_spans(section)]
    make, key, quotas = (span for span in spans if span.startswith("datalens "))
    limits = [span for span in spans if span.startswith("--") and span != "--no-limits"]
    [conflict] = re.findall(r"refused\s+with (\d+)\s+`quota-exceeded`", section)
    [too_many] = re.findall(r"too many\s+requests\s+with (\d+)", section)
    assert limits == ["--bytes", "--datasets", "--jobs", "--requests-per-minute"]

    type_command(service, make)
    plain = type_command(service, key)["api_key"]
    assert set(type_command(service, quotas).values()) >= {None}
    with Client(service.url, plain) as client:
        dataset = client.upload_dataset(private, epsilon=1.0, confirm_classes=True)
        for limit, spend in (
            ("--jobs 0", lambda: client.submit(dataset.id, QUICK, accept_low_utility=True)),
            ("--datasets 1", lambda: client.upload_dataset(private, confirm_classes=True)),
            ("--bytes 1", lambda: client.upload_dataset(private, confirm_classes=True)),
        ):
            set_to = type_command(service, f"{quotas} {limit} --no-limits")
            name, _, number = limit.removeprefix("--").partition(" ")
            assert [shown for shown in set_to.items() if shown[1] is not None][1:] == [(name, int(number))]
            with pytest.raises(ClientError) as refused:
                spend()
            assert (str(refused.value.status), refused.value.slug) == (conflict, "quota-exceeded"), limit
            assert get(service, "/v1/usage", plain).json()["quotas"][name] == int(number)
        # What it has already stays.
        assert client.dataset(dataset.id).state == "ready"
        type_command(service, f"{quotas} --requests-per-minute 2 --no-limits")
        statuses = {get(service, "/v1/usage", plain).status_code for _ in range(8)}
        assert statuses == {200, int(too_many)}
    type_command(service, f"{quotas} --no-limits")
    noted = get(service, "/v1/audit?actor=local", plain).json()["items"]
    assert [entry["action"] for entry in noted] == ["setQuotas"] * 5


def test_retention(service: RunningService, private: Path) -> None:
    section = read_section("docs/operations.md", "Retention")
    spans = read_spans(section)
    set_, preview, tried, show = (span for span in spans if span.startswith("datalens "))
    tenant = next(span for span in spans if span == "--tenant")
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(private, epsilon=1.0, confirm_classes=True)
        assert type_command(service, preview)["items"] == []
        [due] = type_command(service, tried)["items"]
        assert (due["kind"], due["object_id"]) == ("datasets", dataset.id)
        type_command(service, set_)
        assert (client.retention().everywhere.datasets, client.retention().everywhere.results) == (90, 365)
        assert type_command(service, show)["datasets"] == 90
        # Its 90 days are not over: it stays until the tenant keeps less.
        assert client.dataset(dataset.id).state == "ready"
        type_command(service, f"{set_.replace('--datasets 90', '--datasets 0')} {tenant} default")
        wait_until(lambda: client.dataset(dataset.id).state == "deleted", 240.0)
        removed = [one for one in client.journal(actor="retention") if one.object_id == dataset.id]
    assert [one.action for one in removed] == ["removeDatasets"]
    assert not any((service.data_dir / "datasets").glob(f"{dataset.id}/*"))


def test_a_tenant_leaves(service: RunningService, private: Path, tmp_path: Path) -> None:
    section = read_section("docs/operations.md", "A tenant leaves")
    spans = read_spans(section)
    export, remove, verify, create = (span for span in spans if span.startswith("datalens "))
    [check] = (span for span in spans if span.startswith("sha256sum "))
    out, yes = (next(span for span in spans if span == option) for option in ("--out", "--yes"))
    house = type_command(service, f"{create} house")["id"]
    plain = type_command(service, "datalens keys create --name owner --tenant house")["api_key"]
    with Client(service.url, plain) as client:
        dataset = client.upload_dataset(private, epsilon=1.0, confirm_classes=True)
    archive, receipt, unpacked = tmp_path / "house.tar", tmp_path / "receipt.json", tmp_path / "unpacked"
    type_command(service, f"{export} house {out} {archive}")
    with tarfile.open(archive) as packed:
        packed.extractall(unpacked, filter="data")
    subprocess.run(check.split(), cwd=unpacked, check=True, stdout=subprocess.DEVNULL)
    assert (unpacked / "README.txt").exists()
    type_command(service, f"{remove} house {yes} {out} {receipt}")
    assert get(service, "/v1/usage", plain).status_code == 401
    assert run_program(*verify.split()[1:], str(receipt)).returncode == 0
    with Client(service.url, service.api_key) as client:
        assert client.get_tenant(house).receipt == json.loads(receipt.read_text())
    assert json.loads(receipt.read_text())["removed"]["datasets"] == [dataset.id]
    # It comes back with the budget that it had.
    assert type_command(service, f"{create} house")["id"] == house


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.5)


def get(service: RunningService, path: str, plain: str) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {plain}"}
    return httpx2.get(f"{service.url}{path}", headers=headers, timeout=PATIENCE_SECONDS)
