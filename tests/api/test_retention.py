"""Retention, quotas and tenants over the real API and on its pages, as owners and operators use them."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from api_builders import another_caller, arrays, browser, npz, one_of_everything, released, send_images, training
from sqlalchemy import update
from starlette.testclient import TestClient
from typer.testing import CliRunner

from datalens_service.api.deps import Services
from datalens_service.base.settings import Settings
from datalens_service.cli.app import app
from datalens_service.services import removal, tenant_removal
from datalens_service.store.access import keys, tenants
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.access.tenants import Tenant
from datalens_service.store.database_clock import read_clock
from datalens_service.store.schema.tables import JobRow

TUS = {"Tus-Resumable": "1.0.0"}


@pytest.fixture
def lab(services: Services) -> Tenant:
    return tenants.create(services.database, "lab")


@pytest.fixture
def owner(client: TestClient, lab: Tenant) -> TestClient:
    """An owner of another tenant than the one that runs the service."""
    return another_caller(client, KeyRequest("Ada", tenant_id=lab.id))


@pytest.fixture(autouse=True)
def removed_on_request(services: Services) -> None:
    """Leave removal to `remove`: the thread of the API, which a new policy wakes, may come first."""
    services.remover.stop()


def remove(services: Services) -> int:
    count = removal.remove_due(services.database, services.artifacts, services.settings)
    removal.removed_files.remove_noted(services.database, services.artifacts, services.settings)
    return count


def command(settings: Settings, *arguments: str, code: int = 0) -> str:
    called = CliRunner().invoke(app, [*arguments, "--data-dir", str(settings.data_dir)])
    assert called.exit_code == code, called.output
    return called.stdout


def test_a_policy_is_set_previewed_and_journaled(
    client: TestClient, owner: TestClient, services: Services, lab: Tenant
) -> None:
    dataset_id = send_images(owner).json()["id"]
    tried = owner.get("/v1/retention/preview", params={"within_days": 0, "datasets": 0}).json()["items"]
    assert [(one["kind"], one["object_id"]) for one in tried] == [("datasets", dataset_id)]
    assert owner.get("/v1/retention/preview", params={"within_days": 999}).json()["items"] == []
    assert client.put("/v1/retention/everywhere", json={"datasets": 40, "results": 9}).status_code == 200
    read = owner.put("/v1/retention", json={"datasets": 20, "results": 99}).json()
    assert [read[where]["datasets"] for where in ("everywhere", "own", "effective")] == [40, 20, 20]
    assert [read[where]["results"] for where in ("everywhere", "own", "effective")] == [9, 99, 9]
    assert owner.get("/v1/retention").json() == read
    [due] = owner.get("/v1/retention/preview").json()["items"]
    assert due["object_id"] == dataset_id
    page = browser(client, KeyRequest("looks", tenant_id=lab.id)).get("/retention").text
    assert "20 days" in page
    assert "9 days" in page
    owner.put("/v1/retention", json={"datasets": 0})
    assert remove(services) == 1
    assert owner.get(f"/v1/datasets/{dataset_id}").json()["state"] == "deleted"
    entries = owner.get("/v1/audit").json()["items"]
    assert [(one["action"], one["actor"]) for one in entries[-2:]] == [
        ("setRetention", entries[-2]["actor"]), ("removeDatasets", "retention"),
    ]  # fmt: skip
    assert entries[-1]["object_id"] == dataset_id
    # The budget is what it was.
    assert send_images(owner, epsilon="3").json()["code"] == "state-conflict"


@pytest.mark.parametrize(
    "wrong", [{"journal": 29}, {"datasets": -1}, {"datasets": 1.5}, {"datasets": 10**6}, {"sessions": 3}]
)
def test_a_policy_that_cannot_be_is_refused(client: TestClient, wrong: dict[str, Any]) -> None:
    before = client.get("/v1/retention").json()
    assert client.put("/v1/retention", json=wrong).status_code == 422
    assert client.get("/v1/retention").json() == before


def test_who_may_set_what(client: TestClient, owner: TestClient, lab: Tenant) -> None:
    operator = another_caller(client, KeyRequest("runs jobs", tenant_id=lab.id, role=Role.OPERATOR))
    assert operator.put("/v1/retention", json={}).status_code == 403
    assert owner.put("/v1/retention", json={}).status_code == 200
    for method, path, body in (
        ("PUT", "/v1/retention/everywhere", {}),
        ("PUT", f"/v1/tenants/{lab.id}/quotas", {}),
        ("POST", f"/v1/tenants/{lab.id}:remove", {"name": "lab"}),
        ("GET", f"/v1/tenants/{lab.id}", None),
        ("GET", "/v1/tenants", None),
    ):
        assert owner.request(method, path, json=body).status_code == 403, path
    helper = another_caller(client, KeyRequest("runs jobs", role=Role.OPERATOR))
    assert helper.get("/v1/tenants").status_code == 403
    assert client.get("/v1/tenants").status_code == 200
    assert client.get("/v1/tenants/ten_none").status_code == 404
    assert browser(client, KeyRequest("looks", tenant_id=lab.id)).get("/tenants").status_code == 403


def test_a_job_without_results_says_so(client: TestClient, services: Services, dataset_id: str, tmp_path: Path) -> None:
    job_id = released(client, tmp_path, dataset_id)
    with services.database.transaction() as session:
        past = read_clock(services.database) - timedelta(days=9)
        session.execute(update(JobRow).where(JobRow.id == job_id).values(finished_at=past))
    client.put("/v1/retention", json={"results": 8})
    assert remove(services) == 1
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert job["state"] == "succeeded"
    assert job["results_removed_at"] is not None
    for path in ("synthetic", "generator", "report", "samples", "bundle"):
        assert client.get(f"/v1/jobs/{job_id}/{path}").status_code == 404, path
    assert client.get(f"/v1/jobs/{job_id}/artifacts").json()["items"] == []
    page = browser(client).get(f"/jobs/{job_id}")
    assert page.status_code == 200
    assert "Its results were removed" in page.text
    assert browser(client).get("/jobs").status_code == 200
    assert browser(client).get("/releases").status_code == 200


def test_quotas_over_rest(client: TestClient, owner: TestClient, lab: Tenant) -> None:
    set_ = client.put(f"/v1/tenants/{lab.id}/quotas", json={"datasets": 1, "jobs": 2}).json()
    assert set_["quotas"] == {"bytes": None, "datasets": 1, "jobs": 2, "requests_per_minute": None}
    assert owner.get("/v1/usage").json()["quotas"] == set_["quotas"]
    assert send_images(owner).status_code == 201
    refused = send_images(owner, npz(images=arrays(2)["images"]))
    assert (refused.status_code, refused.json()["code"]) == (409, "quota-exceeded")
    assert client.put(f"/v1/tenants/{lab.id}/quotas", json={}).json()["quotas"]["datasets"] is None
    assert client.put(f"/v1/tenants/{lab.id}/quotas", json={"datasets": -1}).status_code == 422


class TestDefaults:
    """Quotas of the settings, for tenants without their own."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"tenant_bytes": 10**6, "tenant_jobs": 1, "tenant_requests_per_minute": 40})

    def test_one_key_cannot_fill_the_disk_of_all(self, client: TestClient, owner: TestClient, lab: Tenant) -> None:
        def announce(caller: TestClient, length: int) -> int:
            return caller.post("/v1/uploads", headers={**TUS, "Upload-Length": str(length)}).status_code

        assert [announce(owner, 400_000) for _ in range(4)] == [201, 201, 409, 409]
        # Others have their own.
        assert announce(client, 400_000) == 201
        # A number of its own wins.
        client.put(f"/v1/tenants/{lab.id}/quotas", json={"bytes": 2_000_000})
        assert announce(owner, 400_000) == 201

    def test_they_are_shown(self, client: TestClient) -> None:
        expected = {"bytes": 10**6, "datasets": None, "jobs": 1, "requests_per_minute": 40}
        assert client.get("/v1/usage").json()["quotas"] == expected
        assert "1, the default" in browser(client).get("/tenants").text

    def test_jobs_and_requests(self, client: TestClient, dataset_id: str) -> None:
        made = [client.post("/v1/jobs", json=training(dataset_id)).status_code for _ in range(2)]
        assert made == [202, 409]
        assert 429 in {client.get("/v1/usage").status_code for _ in range(41)}


def test_a_tenant_is_removed_over_rest(
    client: TestClient, owner: TestClient, services: Services, lab: Tenant, tmp_path: Path
) -> None:
    dataset_id = send_images(owner).json()["id"]
    released(owner, tmp_path, dataset_id)
    assert client.post(f"/v1/tenants/{lab.id}:remove", json={"name": "another"}).status_code == 422
    assert owner.get("/v1/usage").status_code == 200
    begun = client.post(f"/v1/tenants/{lab.id}:remove", json={"name": "lab"})
    assert begun.status_code == 202
    assert owner.get("/v1/usage").status_code == 401
    tenant_removal.proceed_all(services.database, services.artifacts, services.settings)
    read = client.get(f"/v1/tenants/{lab.id}").json()
    assert read["removed_at"] is not None
    assert read["receipt"]["removed"]["datasets"] == [dataset_id]
    assert read["receipt"]["signature"]["key_id"] == client.get("/v1/signing-key").json()["key_id"]
    assert "Removed" in browser(client).get("/tenants").text
    assert client.post("/v1/tenants/default:remove", json={"name": "default"}).status_code == 409
    # Whoever comes back under the name finds the budget of the same images.
    _, plain = keys.create(
        services.database, KeyRequest("again", tenant_id=tenants.create(services.database, "lab").id)
    )
    again = TestClient(client.app, base_url="http://service", headers={"Authorization": f"Bearer {plain}"})
    refused = send_images(again, epsilon="3").json()
    assert (refused["code"], refused["epsilon"]) == ("state-conflict", 10.0)


def test_the_command_line_does_the_same(
    client: TestClient, owner: TestClient, services: Services, settings: Settings, lab: Tenant, tmp_path: Path
) -> None:
    one_of_everything(client, services, send_images(client).json()["id"], tmp_path)
    dataset_id = send_images(owner).json()["id"]
    assert dataset_id in command(settings, "retention", "preview", "--tenant", "lab", "--datasets", "0")
    command(settings, "retention", "set", "--tenant", "lab", "--datasets", "30", code=2)
    assert "30 days" in command(settings, "retention", "set", "--tenant", "lab", "--datasets", "30", "--yes")
    command(settings, "retention", "set", "--datasets", "7", "--yes")
    assert "datasets: 7 days" in command(settings, "retention", "show", "--tenant", "lab")
    assert dataset_id in command(settings, "retention", "preview", "--within", "10")
    archive, receipt = tmp_path / "lab.tar", tmp_path / "receipt.json"
    assert "files of lab" in command(settings, "tenants", "export", "lab", "--out", str(archive))
    assert archive.stat().st_mode & 0o077 == 0
    command(settings, "tenants", "remove", "lab", code=2)
    assert owner.get("/v1/usage").status_code == 200
    assert "is removed" in command(settings, "tenants", "remove", "lab", "--yes", "--out", str(receipt))
    assert owner.get("/v1/usage").status_code == 401
    called = CliRunner().invoke(app, ["verify", str(receipt)])
    assert called.exit_code == 0, called.output
    assert "lab was removed" in called.stdout
    assert '"format": "datalens-removal/1"' in command(settings, "tenants", "remove", "lab")
