"""What Prometheus reads, and that nothing in it depends on private records."""

import dataclasses
import re
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from api_builders import another_caller, claimed, send_images, training
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.services.overview import overview
from datalens_service.store.access import tenants
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role, Scope
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger import account_summary
from datalens_service.store.ledger.account import JobAccount

Samples = dict[tuple[str, str], float]
PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"


def scraped(client: TestClient) -> Samples:
    """Value by name and label."""
    reply = client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(reply.text)
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, "".join(sample.labels.values())): sample.value for sample in samples}


def submitted(client: TestClient, dataset_id: str, epsilon: float) -> str:
    reply = client.post("/v1/jobs", json=training(dataset_id, epsilon=epsilon))
    return str(reply.json()["id"])


def test_every_state_is_there_before_the_first_job(client: TestClient) -> None:
    found = scraped(client)
    assert {name: found["datalens_jobs", name] for name in JobState} == dict.fromkeys(JobState, 0.0)
    assert found["datalens_steps_per_second", ""] == 0
    assert found["datalens_accounts_frozen", ""] == 0
    assert found["process_resident_memory_bytes", ""] > 0


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_what_operators_are_shown_is_served(client: TestClient, file: str) -> None:
    families = list(text_string_to_metric_families(client.get("/metrics").text))
    served = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    named = set(re.findall(r"datalens_\w+", (PROMETHEUS / file).read_text()))
    assert named
    assert named <= served


def test_keys_that_are_none_are_counted(client: TestClient) -> None:
    before = scraped(client)["datalens_sign_ins_refused_total", ""]
    client.get("/v1/jobs", headers={"Authorization": "Bearer dlk_guessed"})
    client.post("/sign-in", data={"key": "dlk_guessed"})
    client.get("/v1/jobs")
    assert scraped(client)["datalens_sign_ins_refused_total", ""] == before + 2


def test_jobs_queue_and_budget_follow_the_database(client: TestClient, services: Services, dataset_id: str) -> None:
    first, _ = submitted(client, dataset_id, 1.0), submitted(client, dataset_id, 2.0)
    before = scraped(client)
    assert before["datalens_jobs", "queued"] == before["datalens_queue_jobs", ""] == 2
    assert before["datalens_queue_oldest_seconds", ""] >= 0
    assert before["datalens_epsilon_spent", dataset_id] == 0

    lease = claimed(services, first)
    account = JobAccount(services.database, first, lease.token)
    account.charge(0, "moments", 10**12)
    account.charge(1, "moments", 10**12)

    after = scraped(client)
    assert (after["datalens_jobs", "queued"], after["datalens_jobs", "running"]) == (1, 1)
    assert after["datalens_ledger_entries_total", ""] == before["datalens_ledger_entries_total", ""] + 2
    budget = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    for name in ("limit", "reserved", "spent", "remaining"):
        assert after[f"datalens_epsilon_{name}", dataset_id] == budget[f"epsilon_{name}"]
    # Whole minutes, as in the journal: a finer pace would tell how long steps on private records took.
    with services.database.session() as session:
        minutes = {entry.at for entry in account_summary.entries(session, dataset_id) if entry.kind == EntryKind.CHARGE}
    assert len(minutes) <= 2
    paces = [overview(services.database, now=minute + timedelta(seconds=61)).steps_per_second for minute in minutes]
    assert sum(paces) == pytest.approx(2 / 60)
    assert overview(services.database, now=max(minutes) + timedelta(minutes=2)).steps_per_second == 0


def test_deleted_data_sets_are_left_out(client: TestClient, dataset_id: str) -> None:
    assert ("datalens_epsilon_limit", dataset_id) in scraped(client)
    client.delete(f"/v1/datasets/{dataset_id}")
    assert ("datalens_epsilon_limit", dataset_id) not in scraped(client)


def test_metrics_are_for_keys_of_the_tenant_that_runs_the_service(
    client: TestClient, services: Services, dataset_id: str
) -> None:
    other = tenants.create(services.database, "other")

    def caller(tenant_id: str, role: Role, scopes: list[Scope] | None = None) -> TestClient:
        return another_caller(client, KeyRequest("x", tenant_id=tenant_id, role=role, scopes=scopes))

    theirs = send_images(caller(other.id, Role.OWNER), epsilon="3")
    assert theirs.status_code == 201
    both = {("datalens_epsilon_limit", dataset_id), ("datalens_epsilon_limit", theirs.json()["id"])}
    for role, scopes in ((Role.OWNER, None), (Role.OPERATOR, None), (Role.OPERATOR, [Scope.USAGE_READ])):
        assert both <= scraped(caller("default", role, scopes)).keys()
    for tenant_id, role in ((other.id, Role.OWNER), (other.id, Role.OPERATOR), ("default", Role.CONSUMER)):
        refused = caller(tenant_id, role).get("/metrics")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "datalens_" not in refused.text


def test_metrics_are_not_for_strangers(client: TestClient) -> None:
    reply: httpx2.Response = client.get("/metrics", headers={"Authorization": "Bearer dlk_wrong"})
    assert (reply.status_code, reply.json()["code"]) == (401, "unauthorized")


def test_failures_have_a_reason_and_jobs_without_a_worker_are_counted(
    client: TestClient, services: Services, dataset_id: str
) -> None:
    lease = claimed(services, submitted(client, dataset_id, 1.0))
    assert scraped(client)["datalens_jobs_without_worker", ""] == 0
    leases.renew(services.database, dataclasses.replace(lease, seconds=-1))
    assert scraped(client)["datalens_jobs_without_worker", ""] == 1
    leases.finish(services.database, lease, JobState.FAILED, leases.WORKER_LOST)
    found = scraped(client)
    assert found["datalens_jobs_without_worker", ""] == 0
    assert found["datalens_jobs_failed", "worker-lost"] == 1
    assert found["datalens_disk_free_bytes", "data"] > 0
