"""What a tenant may have at once: the operator sets it, the tenant sees it, and nobody gets more."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from api_builders import arrays, npz, send_images, sign_in, training
from starlette.testclient import TestClient
from typer.testing import CliRunner

from datalens_service.api.deps import Services
from datalens_service.base.settings import Settings
from datalens_service.cli.app import app
from datalens_service.store.access import access_log, keys, quotas, tenants
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.quotas import Quotas
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import DEFAULT_TENANT

TUS = {"Tus-Resumable": "1.0.0"}


def allow(services: Services, **limits: int) -> None:
    quotas.change(services.database, DEFAULT_TENANT, Quotas(**limits), actor="local")


def refused(reply: Any, quota: str, limit: int) -> bool:
    problem = reply.json()
    assert (reply.status_code, problem["code"], problem["type"]) == (409, "quota-exceeded", "/problems/quota-exceeded")
    assert f"may have {limit:,} " in problem["detail"]
    return bool((problem["quota"], problem["limit"]) == (quota, limit))


def announce(client: TestClient, length: int) -> Any:
    return client.post("/v1/uploads", headers={**TUS, "Upload-Length": str(length)})


def other_images() -> bytes:
    return npz(images=arrays(2)["images"])


def submit(client: TestClient, dataset_id: str) -> Any:
    return client.post("/v1/jobs", json=training(dataset_id))


def test_jobs_at_once(client: TestClient, services: Services, dataset_id: str) -> None:
    allow(services, jobs=2)
    made = [submit(client, dataset_id) for _ in range(3)]
    assert [one.status_code for one in made] == [202, 202, 409]
    assert refused(made[2], "jobs", 2)
    assert client.post(made[0].json()["links"]["cancel"]).status_code == 202
    assert submit(client, dataset_id).status_code == 202


def test_jobs_that_are_submitted_at_once(client: TestClient, services: Services, dataset_id: str) -> None:
    allow(services, jobs=3)
    begin = threading.Barrier(8)

    def one(_: int) -> int:
        begin.wait()
        return int(submit(client, dataset_id).status_code)

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(one, range(8))) == [202] * 3 + [409] * 5


def test_data_sets(client: TestClient, services: Services, dataset_id: str) -> None:
    allow(services, datasets=1)
    assert refused(send_images(client, other_images()), "datasets", 1)
    assert len(list((services.settings.data_dir / "datasets").glob("ds_*"))) == 1
    assert client.delete(f"/v1/datasets/{dataset_id}").status_code == 200
    assert send_images(client, other_images()).status_code == 201


def test_bytes_are_those_announced_and_those_decoded(client: TestClient, services: Services) -> None:
    content, folder = npz(), services.settings.data_dir / "datasets"
    allow(services, bytes=1000)
    assert announce(client, 600).status_code == 201
    assert refused(announce(client, 401), "bytes", 1000)
    # The file has room, its records have not.
    allow(services, bytes=len(content) + 2000)
    assert refused(send_images(client, content), "bytes", len(content) + 2000)
    assert list(folder.glob("ds_*")) == []
    allow(services, bytes=10**7)
    assert send_images(client, content).status_code == 201
    stored = sum(path.stat().st_size for path in folder.glob("ds_*/*"))
    allow(services, bytes=stored + 700)
    assert announce(client, 100).status_code == 201
    assert refused(announce(client, 1), "bytes", stored + 700)


def test_requests_of_all_keys_together(client: TestClient, services: Services) -> None:
    allow(services, requests_per_minute=60)
    other = {"Authorization": f"Bearer {keys.create(services.database, 'other')[1]}"}
    answers = [client.get("/v1/usage", headers=other if number % 2 else {}) for number in range(11)]
    assert [one.status_code for one in answers] == [200] * 10 + [429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 10
    assert "tenant" in answers[-1].json()["detail"]


def test_other_tenants_have_their_own(client: TestClient, services: Services, dataset_id: str) -> None:
    allow(services, datasets=1, requests_per_minute=60, bytes=1)
    tenant = tenants.create(services.database, "other")
    plain = keys.create(services.database, KeyRequest("other", tenant_id=tenant.id))[1]
    client.headers["Authorization"] = f"Bearer {plain}"
    assert client.get("/v1/usage").json()["quotas"] == dict.fromkeys(vars(Quotas()))
    assert send_images(client, other_images()).status_code == 201


def test_they_are_seen_over_rest_and_on_the_page(client: TestClient, services: Services) -> None:
    allow(services, jobs=1234, bytes=2**30)
    seen = client.get("/v1/usage").json()["quotas"]
    assert seen == {"bytes": 2**30, "datasets": None, "jobs": 1234, "requests_per_minute": None}
    sign_in(client)
    page = client.get("/usage").text
    assert "1,234" in page
    assert "no limit" in page


def test_the_operator_sets_them_at_the_command_line(services: Services, settings: Settings) -> None:
    def command(*options: str) -> str:
        called = CliRunner().invoke(
            app, ["tenants", "quotas", "default", *options, "--data-dir", str(settings.data_dir)]
        )
        assert called.exit_code == 0, called.output
        return called.stdout

    said = command("--jobs", "3", "--bytes", "1000000")
    assert "jobs: 3" in said
    assert "datasets: no limit" in said
    command("--datasets", "7")
    assert quotas.read(services.database, DEFAULT_TENANT) == Quotas(bytes=10**6, datasets=7, jobs=3)
    assert command() == command("--no-limits", "--bytes", "1000000", "--datasets", "7", "--jobs", "3")
    command("--no-limits")
    assert quotas.read(services.database, DEFAULT_TENANT) == Quotas()
    noted = [one for one in access_log.list_latest(services.database, DEFAULT_TENANT)[0] if one.action == "setQuotas"]
    assert [(one.actor, one.detail) for one in noted][:2] == [
        ("local", "none"),
        ("local", "bytes 1000000, datasets 7, jobs 3"),
    ]


@pytest.mark.both_databases
def test_quotas_are_replaced_as_a_whole(database: Database) -> None:
    quotas.change(database, DEFAULT_TENANT, Quotas(jobs=1), actor="local")
    quotas.change(database, DEFAULT_TENANT, Quotas(bytes=2), actor="local")
    assert quotas.read(database, DEFAULT_TENANT) == Quotas(bytes=2)
