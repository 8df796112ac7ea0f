"""The application starts without torch, answers whether it lives, and cleans up after a crash."""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from api_builders import bearer, send_images, training
from sqlalchemy import text
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from certificates import issue_certificate
from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.services import ledger_check
from datalens_service.store import patience
from datalens_service.store.database import Database
from datalens_service.store.datasets.record_files import records_folder
from datalens_service.store.datasets.upload_room import incoming_folder, open_incoming
from datalens_service.store.ledger.recovery import finish_check
from deployments.postgresql import Cluster, roomy_memory
from in_process_service import InProcessService

TEMPLATE = "datalens_template"

START = """
import sys
from pathlib import Path
from datalens_service.api.main import create_app
from datalens_service.base.settings import Settings
from starlette.testclient import TestClient

with TestClient(create_app(Settings(data_dir=Path(sys.argv[1])))) as client:
    assert client.get("/readyz").status_code == 200
    # A quarter of the time of a start.
    assert "scipy.stats" not in sys.modules
    assert client.get("/openapi.json").status_code == 200
heavy = {"torch", "celery"} & set(sys.modules)
assert not heavy, heavy
"""


def test_starts_and_answers_without_torch_and_celery(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", START, str(tmp_path / "data")], check=True, timeout=280)


def test_requests_are_answered_while_accounts_are_audited(
    settings: Settings, client: TestClient, dataset_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_may_begin = threading.Event()

    def later(*arguments: Any) -> tuple[str, ...]:
        audit_may_begin.wait(240)
        return finish_check(*arguments)

    monkeypatch.setattr(ledger_check, "finish_check", later)
    with TestClient(create_app(settings), base_url="http://service", headers=client.headers) as again:
        services: Services = again.app.state.services
        assert len(services.database.unchecked) == 1
        assert again.get("/readyz").status_code == 200
        assert again.get(f"/v1/datasets/{dataset_id}/privacy").status_code == 200
        assert len(services.database.unchecked) == 1
        assert again.post("/v1/jobs", json=training(dataset_id)).status_code == 202
        assert services.database.unchecked == {}, "it was checked first"
        audit_may_begin.set()


def test_live_and_ready_need_no_key(client: TestClient) -> None:
    client.headers.pop("Authorization")
    assert client.get("/livez").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok", "executor": "local", "degraded": {}}


def test_not_ready_when_the_database_has_lost_a_guard(client: TestClient, services: Services) -> None:
    with services.database.transaction() as session:
        session.connection().exec_driver_sql("DROP TRIGGER accounts_no_refund")
    reply = client.get("/readyz")
    assert (reply.status_code, reply.json()["code"]) == (503, "store-unavailable")
    assert client.get("/livez").status_code == 200


def test_start_removes_what_a_killed_process_left(settings: Settings, dataset_id: str, client: TestClient) -> None:
    orphan = records_folder(settings.data_dir) / ("ds_" + "0" * 32)
    unfinished = records_folder(settings.data_dir) / (".ds_" + "0" * 32 + "-abc")
    upload = incoming_folder(settings.data_dir) / "upload-abc"
    orphan.mkdir()
    unfinished.mkdir()
    upload.write_bytes(b"private")
    with TestClient(create_app(settings)):
        assert not orphan.exists()
        assert not unfinished.exists()
        assert not upload.exists()
        assert (records_folder(settings.data_dir) / dataset_id).exists()


def test_start_leaves_uploads_of_living_processes(settings: Settings, client: TestClient) -> None:
    file, path = open_incoming(settings.data_dir, 100)
    with file, TestClient(create_app(settings)):
        assert path.exists()
    with TestClient(create_app(settings)):
        assert not path.exists()


@pytest.mark.postgres
def test_the_same_on_postgresql(settings: Settings, postgresql: Any) -> None:
    url = postgresql.new_database(TEMPLATE)
    with TestClient(create_app(settings.model_copy(update={"database_url": url}))) as client:
        client.headers.update(bearer(client))
        assert client.get("/readyz").status_code == 200
        dataset_id = send_images(client).json()["id"]
        job = client.post("/v1/jobs", json=training(dataset_id)).json()
        assert client.get(job["links"]["self"]).json() == job
        assert client.post("/v1/jobs", json=training(dataset_id, epsilon=10)).status_code == 409
        assert client.get("/v1/jobs").json()["items"] == [job]
        for path in ("/metrics", "/v1/usage"):
            assert client.get(path).status_code == 200
        assert client.get("/v1/jobs/%00").status_code == 422


@pytest.mark.postgres
def test_a_frozen_database_is_said_at_once(settings: Settings, postgresql: Cluster) -> None:
    url = postgresql.new_database(TEMPLATE)
    with TestClient(create_app(settings.model_copy(update={"database_url": url}))) as client:
        client.headers.update(bearer(client))
        with postgresql.frozen():
            # Without an end of the wait, none of them would be answered.
            for path in ("/readyz", "/v1/jobs", "/v1/usage", "/jobs"):
                reply = client.get(path)
                assert reply.status_code == 503
                assert int(reply.headers["Retry-After"]) > 0
            assert client.get("/livez").status_code == 200
        _wait(lambda: client.get("/readyz").status_code == 200)


@pytest.mark.postgres
def test_a_locked_table_does_not_hold_up_readiness(
    settings: Settings, postgresql: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More requests wait for the table than there are connections and threads."""
    monkeypatch.setattr(patience, "SECONDS", 240)
    url = postgresql.new_database(TEMPLATE)
    service = InProcessService(settings.model_copy(update={"database_url": url}))
    database = Database(url)
    key = {"Authorization": f"Bearer {service.api_key}"}

    def ask(path: str) -> int:
        return httpx2.get(service.url + path, headers=key, timeout=240).status_code

    try:
        with ThreadPoolExecutor(60) as clients:
            with database.transaction() as session:
                session.execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
                answers = [clients.submit(ask, "/v1/jobs") for _ in range(60)]
                while count_waiters(session) < settings.database_connections:
                    time.sleep(0.05)
                assert [ask("/readyz") for _ in range(3)] == [200] * 3
                assert not any(answer.done() for answer in answers)
            assert {answer.result(240) for answer in answers} == {200}
    finally:
        database.dispose()
        service.stop()


def count_waiters(session: Session) -> int:
    return int(session.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")) or 0)


@pytest.mark.postgres
def test_a_database_whose_certificate_nobody_verifies_is_told(settings: Settings, tmp_path: Path) -> None:
    issue_certificate(tmp_path / "server.pem")
    with tempfile.TemporaryDirectory(prefix="dlpg", dir=roomy_memory()) as folder:
        server = Cluster(Path(folder), tmp_path / "server.pem")
        server.start()
        try:
            url = server.tls_url("postgres")
            verified = f"{url}?sslmode=verify-full"
            with (
                pytest.raises(StoreUnavailable, match="certificate"),
                TestClient(create_app(_with(settings, verified))),
            ):
                pass
            for query, is_told in (
                (f"{verified}&sslrootcert={tmp_path / 'server.pem'}", False),
                ("", False),
                (f"{url}?sslmode=require", True),
                (f"{url}?sslmode=disable", False),
            ):
                with TestClient(create_app(_with(settings, query or url))) as client:
                    client.app.state.services.surroundings.look()
                    told = client.get("/readyz").json()["degraded"].get("database", "")
                    assert ("takes any certificate" in told) == is_told, query
        finally:
            server.stop()


def _with(settings: Settings, url: str) -> Settings:
    return Settings.model_validate(settings.model_dump() | {"database_url": url})


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
