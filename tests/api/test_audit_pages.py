"""What attacks found, on pages: for the owner alone, with the curve that μ allows beside that of the attack."""

from pathlib import Path

import pytest
from api_builders import REHEARSAL, claimed, found_by_attacks, released, sign_in
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.store.access import access_log
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.jobs import audits, leases
from datalens_service.store.jobs.jobs import JobState

CANARY = 918_273_645


@pytest.fixture
def job_id(client: TestClient, dataset_id: str, tmp_path: Path) -> str:
    return released(client, tmp_path, dataset_id)


@pytest.fixture
def audit_id(services: Services, dataset_id: str, job_id: str) -> str:
    request = {"target": {"kind": "released", "job_id": job_id}, "attacks": ["loss_threshold"]}
    audit = audits.create(
        services.database, dataset_id=dataset_id, request=request, submitted_by="key_test", attacked_job_id=job_id
    )
    lease = claimed(services, audit.job.id)
    audits.store_result(services.database, lease, found_by_attacks(CANARY), b"\x89PNG")
    leases.finish(services.database, lease, JobState.SUCCEEDED)
    return audit.job.id


def test_the_owner_sees_curves_on_the_pages_of_job_dataset_and_audit(
    client: TestClient, services: Services, dataset_id: str, job_id: str, audit_id: str
) -> None:
    sign_in(client)
    for path in (f"/jobs/{job_id}", f"/datasets/{dataset_id}"):
        page = client.get(path)
        assert page.status_code == 200, page.text
        assert "What attacks found" in page.text
        assert f'href="/audits/{audit_id}"' in page.text
        assert page.text.count('class="curve bound"') == 2  # The curve and its line in the legend.
        assert "not to be passed on" in page.text
    page = client.get(f"/audits/{audit_id}")
    assert page.status_code == 200, page.text
    assert f"{CANARY:,}" in page.text
    assert "Lower bounds" in page.text
    assert "Yeom et al. 2018" in page.text
    assert "Geiping et al. 2020" in page.text
    assert "0.070 (0.010 to 0.200)" in page.text
    assert f'src="/v1/audits/{audit_id}/picture"' in page.text
    entries, _ = access_log.list_entries(services.database, "default", limit=100)
    noted = [entry.action for entry in entries]
    assert noted.count("seeAudits") == 3


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.CONSUMER])
def test_nobody_else_sees_that_there_was_an_attack(
    client: TestClient, dataset_id: str, job_id: str, audit_id: str, role: Role
) -> None:
    sign_in(client, KeyRequest("visitor", role=role))
    for path in (f"/jobs/{job_id}", f"/datasets/{dataset_id}", f"/audits/{audit_id}", "/jobs", "/releases"):
        page = client.get(path)
        assert "What attacks found" not in page.text
        assert audit_id not in page.text
    assert client.get(f"/audits/{audit_id}").status_code == 403


def test_a_waiting_audit_has_a_page_and_the_curve_of_none(
    client: TestClient, services: Services, dataset_id: str, job_id: str
) -> None:
    sign_in(client)
    assert "No attack was tried." in client.get(f"/jobs/{job_id}").text, "without an audit"
    audit = audits.create(services.database, dataset_id=dataset_id, request=REHEARSAL, submitted_by="key_test")
    page = client.get(f"/audits/{audit.job.id}")
    assert page.status_code == 200, page.text
    assert "Waiting" in page.text
    assert "<polyline" not in page.text
    assert f'data-send="POST /v1/audits/{audit.job.id}:cancel"' in page.text
