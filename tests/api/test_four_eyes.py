"""Results that wait for a second person: who sees what before, who decides, and what a decision changes."""

import re
from pathlib import Path
from typing import Any

import api_builders
import pytest
from api_builders import another_caller, browser, claimed, description, leave_files, report_of, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.security.permissions import RULES
from datalens_service.base.errors import Forbidden
from datalens_service.evaluation.metrics import METRICS
from datalens_service.store.access import identities, keys, tenants
from datalens_service.store.access.identities import Identity
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import SCOPES, Role, Scope
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import approvals, jobs, leases, released_models
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.released_models import Approval
from datalens_service.store.schema.service_tables import ReleasedImageRow
from datalens_service.store.schema.tables import JobRow

WHY = {"reason": "Report read; agreed."}


@pytest.fixture
def steward(client: TestClient) -> TestClient:
    """Somebody whose key was made on the machine of the service."""
    return another_caller(client, KeyRequest("Sue", role=Role.STEWARD))


@pytest.fixture
def operator(client: TestClient) -> TestClient:
    return another_caller(client, KeyRequest("Paul", role=Role.OPERATOR))


def submitted(caller: TestClient, dataset_id: str, **members: Any) -> str:
    reply = caller.post("/v1/jobs", json={**training(dataset_id), "release": "after_approval", **members})
    assert reply.status_code == 202, reply.text
    return str(reply.json()["id"])


def ended(services: Services, job_id: str, folder: Path) -> str:
    """The job with its files, succeeded."""
    lease = claimed(services, job_id)
    leave_files(services, lease, folder)
    leases.mark_released(services.database, lease, "generator")
    leases.finish(services.database, lease, JobState.SUCCEEDED)
    return job_id


@pytest.fixture
def waiting(services: Services, operator: TestClient, dataset_id: str, tmp_path: Path) -> str:
    """A job of the operator whose result waits."""
    return ended(services, submitted(operator, dataset_id), tmp_path)


def release_of(job_id: str) -> str:
    return released_models.build_id(job_id)


def handed_out(job_id: str) -> list[str]:
    """Addresses of everything that is a release."""
    job, generator = f"/v1/jobs/{job_id}", f"/v1/generators/{release_of(job_id)}"
    own = ("synthetic", "dataset", "bundle", "generator", "artifacts/synthetic.npz", "artifacts/samples.png")
    return [*(f"{job}/{part}" for part in own), generator, f"{generator}/file", f"{generator}/samples",
            f"/v1/releases/{release_of(job_id)}"]  # fmt: skip


def reviewed(job_id: str) -> list[str]:
    """Addresses of what second persons look at."""
    job = f"/v1/jobs/{job_id}"
    return [f"{job}/report?audience=releasable", f"{job}/samples.png", f"{job}/artifacts"]


def statuses(caller: TestClient, addresses: list[str]) -> set[int]:
    return {caller.get(address).status_code for address in addresses}


def test_a_result_waits_for_a_second_person_and_is_then_handed_out(
    client: TestClient, operator: TestClient, steward: TestClient, waiting: str
) -> None:
    partner = another_caller(client, KeyRequest("partner", role=Role.CONSUMER))
    for caller in (client, operator, steward, partner):
        assert statuses(caller, handed_out(waiting)) == {409}
        assert caller.get("/v1/releases").json()["items"] == caller.get("/v1/generators").json()["items"] == []
    assert statuses(steward, reviewed(waiting)) == statuses(client, reviewed(waiting)) == {200}
    assert statuses(operator, reviewed(waiting)) == statuses(partner, reviewed(waiting)) == {409}
    assert client.get(f"/v1/jobs/{waiting}/report").status_code == 200, "figures of the owner's own data"
    assert steward.get(f"/v1/jobs/{waiting}/report").status_code == 403
    shown = operator.get(f"/v1/jobs/{waiting}").json()
    assert (shown["state"], shown["approval"]["state"], shown["links"]["synthetic"]) == ("succeeded", "waiting", None)

    decided = steward.post(f"/v1/jobs/{waiting}:release", json=WHY)
    assert decided.status_code == 200, decided.text
    assert decided.json()["approval"]["reason"] == WHY["reason"]
    for caller in (client, operator, steward, partner):
        assert statuses(caller, [*handed_out(waiting)[2:], *reviewed(waiting)]) == {200}
        assert [one["id"] for one in caller.get("/v1/releases").json()["items"]] == [release_of(waiting)]
    noted = [(item["action"], item["detail"]) for item in client.get("/v1/audit").json()["items"]]
    assert ("releaseJob", WHY["reason"]) in noted


def test_a_decision_may_be_changed_by_another_one_and_withholding_ends_what_was_shared(
    client: TestClient, steward: TestClient, waiting: str
) -> None:
    steward.post(f"/v1/jobs/{waiting}:release", json=WHY)
    link = client.post(f"/v1/releases/{release_of(waiting)}/links", json={"partner": "a clinic"}).json()["url"]
    signed = client.post(f"/v1/jobs/{waiting}/artifacts/synthetic.npz:sign").json()["url"]
    nobody = TestClient(client.app, base_url="http://service")
    assert statuses(nobody, [link, f"{link}/images?format=npz", signed]) == {200}
    spent = client.get(f"/v1/jobs/{waiting}").json()["privacy"]
    assert steward.post(f"/v1/jobs/{waiting}:withhold", json={"reason": "Too few."}).status_code == 200
    assert nobody.get(link).status_code == nobody.get(f"{link}/images?format=npz").status_code == 404
    assert nobody.get(signed).status_code == 409
    assert statuses(client, handed_out(waiting)) == {409}
    assert client.get(f"/v1/jobs/{waiting}").json()["privacy"] == spent, "nothing is refunded"
    again = steward.post(f"/v1/jobs/{waiting}:withhold", json=WHY)
    assert (again.status_code, again.json()["code"]) == (409, "state-conflict")
    assert steward.post(f"/v1/jobs/{waiting}:release", json=WHY).status_code == 200
    assert nobody.get(link).status_code == 200
    noted = [item["action"] for item in client.get("/v1/audit").json()["items"]]
    assert [one for one in noted if one in ("releaseJob", "withholdJob")] == ["releaseJob", "withholdJob", "releaseJob"]


def test_whoever_submitted_does_not_decide_by_no_key_that_may_be_theirs(
    client: TestClient, services: Services, dataset_id: str, tmp_path: Path
) -> None:
    """The owner submits; makes another key for themselves over REST; has one of the same name; replaces another's."""
    job_id = ended(services, submitted(client, dataset_id), tmp_path)
    made = client.post("/v1/api-keys", json={"name": "Not me", "role": "steward"}).json()
    further = another_caller_with(client, made["api_key"])
    of_an_operator = client.post("/v1/api-keys", json={"name": "Nor me", "role": "operator"}).json()
    namesake = another_caller(client, KeyRequest(" TEST ", role=Role.STEWARD))
    other, _ = keys.create(services.database, KeyRequest("Sue", role=Role.STEWARD))
    replaced = client.post(f"/v1/api-keys/{other.id}:rotate").json()
    for caller in (client, further, namesake, another_caller_with(client, replaced["api_key"])):
        for action in ("release", "withhold"):
            refused = caller.post(f"/v1/jobs/{job_id}:{action}", json=WHY)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert client.get(f"/v1/jobs/{job_id}").json()["approval"]["state"] == "waiting"
    refusals = [item for item in client.get("/v1/audit").json()["items"] if item["action"] == "releaseJob"]
    assert [item["outcome"] for item in refusals] == [403] * 4
    # A job that the owner submits by a key for somebody else is theirs, too.
    theirs = another_caller_with(client, of_an_operator["api_key"])
    second = ended(services, submitted(theirs, dataset_id), tmp_path)
    for caller in (client, further):
        assert caller.post(f"/v1/jobs/{second}:release", json=WHY).status_code == 403
    assert (
        another_caller(client, KeyRequest("Ann", role=Role.OWNER))
        .post(f"/v1/jobs/{second}:release", json=WHY)
        .is_success
    )


def another_caller_with(client: TestClient, plain: str) -> TestClient:
    return TestClient(client.app, base_url="http://service", headers={"Authorization": f"Bearer {plain}"})


def person(services: Services, subject: str, name: str, role: Role) -> keys.ApiKey:
    """Somebody who signs in elsewhere."""
    identity = Identity("https://id.example", subject, name, "default", role, SCOPES[role])
    return identities.sign_in(services.database, identity).key


def test_people_who_sign_in_elsewhere_are_known_by_their_provider_and_not_by_their_name(
    services: Services, operator: TestClient, dataset_id: str, tmp_path: Path
) -> None:
    first, namesake = (person(services, subject, "John Smith", Role.STEWARD) for subject in ("1", "2"))
    paul = person(services, "3", "paul", Role.STEWARD)
    job_id = ended(services, submitted(operator, dataset_id), tmp_path)
    with pytest.raises(Forbidden, match="second person"):
        approvals.decide(services.database, paul, job_id, Approval.RELEASED, "x")
    with services.database.transaction() as session:
        session.get_one(JobRow, job_id).submitted_by = first.id
    with pytest.raises(Forbidden, match="second person"):
        approvals.decide(services.database, first, job_id, Approval.RELEASED, "x")
    assert approvals.decide(services.database, namesake, job_id, Approval.RELEASED, "x").approval == "released"
    assert keys.get(services.database, first.id).role is Role.STEWARD
    assert jobs.get(services.database, job_id).decided_by == namesake.id


def test_only_a_job_that_asked_for_it_and_has_succeeded_is_decided_about(
    client: TestClient, services: Services, steward: TestClient, operator: TestClient, dataset_id: str, tmp_path: Path
) -> None:
    free = client.post("/v1/jobs", json=training(dataset_id)).json()
    assert free["approval"] is None
    running = submitted(client, dataset_id)
    for job_id in (free["id"], running):
        refused = steward.post(f"/v1/jobs/{job_id}:release", json=WHY)
        assert (refused.status_code, refused.json()["code"]) == (409, "state-conflict")
    ended(services, free["id"], tmp_path)
    assert statuses(operator, handed_out(free["id"])[2:]) == {200}
    assert steward.post(f"/v1/jobs/{running}:release", json={"reason": " "}).status_code == 422
    assert operator.post(f"/v1/jobs/{running}:release", json=WHY).status_code == 403


def test_samples_of_a_job_that_still_trains_are_for_second_persons(
    client: TestClient, services: Services, operator: TestClient, steward: TestClient, dataset_id: str
) -> None:
    job_id = submitted(operator, dataset_id)
    lease = claimed(services, job_id)
    services.artifacts.put(lease, "samples.png", b"\x89PNG", releasable=True, media_type="image/png")
    services.artifacts.put(lease, "preview-1.png", b"\x89PNG", releasable=True, media_type="image/png")
    for caller in (client, operator, steward):
        assert caller.get(f"/v1/jobs/{job_id}/artifacts/preview-1.png").status_code == 409
    seen = {}
    for name, role in (("Paul", Role.OPERATOR), ("Sue", Role.STEWARD)):
        visitor = browser(client, KeyRequest(name, role=role))
        seen[name] = visitor.get(f"/jobs/{job_id}/samples.png").status_code
        assert ("Samples so far" in visitor.get(f"/jobs/{job_id}").text) == (name == "Sue")
    assert seen == {"Paul": 409, "Sue": 200}


def test_a_copy_asks_for_approval_and_so_does_a_repeated_request(
    client: TestClient, operator: TestClient, waiting: str, dataset_id: str
) -> None:
    assert operator.post(f"/v1/jobs/{waiting}:clone").json()["approval"]["state"] == "waiting"
    headers = {"Idempotency-Key": "k"}
    first = client.post("/v1/jobs", json=training(dataset_id), headers=headers)
    asked = {**training(dataset_id), "release": "after_approval"}
    assert first.status_code == 202
    assert client.post("/v1/jobs", json=asked, headers=headers).status_code == 409


def test_pages_show_a_result_to_those_who_decide_and_its_state_to_all(client: TestClient, waiting: str) -> None:
    paul = browser(client, KeyRequest("Paul", role=Role.OPERATOR))
    sue = browser(client, KeyRequest("Sue", role=Role.STEWARD))
    page = paul.get(f"/jobs/{waiting}").text
    assert "waits for a second person" in page
    assert "samples.png" not in page
    assert "a coin gets 50" not in page
    assert "Run again" in page
    assert "waits for a second person" in paul.get("/jobs").text
    for path in (f"/jobs/{waiting}/report", f"/jobs/{waiting}/images", f"/jobs/{waiting}/samples.png"):
        assert paul.get(path).status_code == 409, path
    page = sue.get(f"/jobs/{waiting}").text
    for text in ("a coin gets 50", "samples.png", "Release it…", "Withhold it…", f"/jobs/{waiting}/report"):
        assert text in page
    # A steward may plan jobs, and submit none.
    assert "Plan another like it" in page
    assert not re.search("Run again|A job of its own", page)
    assert sue.get(f"/jobs/{waiting}/samples.png").status_code == 200
    assert sue.get(f"/jobs/{waiting}/report").status_code == 200
    assert sue.get(f"/jobs/{waiting}/images").status_code == 409
    assert sue.get("/releases").text.count("<article") == 0


def test_a_steward_sees_no_private_figure(
    client: TestClient,
    services: Services,
    operator: TestClient,
    dataset_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports = {view: report_of(view, dict.fromkeys(METRICS, 1.0)) for view in ("owner", "releasable")}
    monkeypatch.setattr(api_builders, "report", reports.__getitem__)
    waiting = ended(services, submitted(operator, dataset_id), tmp_path)
    assert Scope.REPORTS_READ not in SCOPES[Role.STEWARD]
    assert not {Scope.DATASETS_WRITE, Scope.JOBS_WRITE, Scope.RELEASES_WRITE, Scope.KEYS_WRITE} & SCOPES[Role.STEWARD]
    titles = {metric.title for metric in METRICS.values()}
    owner, sue = (browser(client, KeyRequest("visitor", role=role)) for role in (Role.OWNER, Role.STEWARD))
    for page in (f"/jobs/{waiting}", "/jobs", f"/jobs/{waiting}/report"):
        assert not any(title in sue.get(page).text for title in titles), page
    assert any(title in owner.get(f"/jobs/{waiting}").text for title in titles)


def test_every_operation_that_hands_out_a_result_of_its_path_is_closed(
    client: TestClient, services: Services, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever opens a file of the job, or lists its model, is refused before it begins."""
    opened: list[str] = []
    for name in ("get", "releasable", "list_artifacts"):
        call = getattr(ArtifactStore, name)
        monkeypatch.setattr(ArtifactStore, name, lambda *given, call=call: opened.append(given[1]) or call(*given))
    outsider = another_caller(client, KeyRequest("Paul", role=Role.OWNER, scopes=set(Scope) - {Scope.RELEASES_APPROVE}))
    ids = {"job_id": waiting, "generator_id": release_of(waiting), "release_id": release_of(waiting)}
    ids |= {"classifier_id": release_of(waiting), "name": "synthetic.npz"}
    tried = set()
    for path, methods in description()["paths"].items():
        names = {part[1:-1] for part in path.replace(":", "/").split("/") if part.startswith("{")}
        for method, operation in methods.items():
            if names and names <= ids.keys() and method == "get":
                tried.add(operation["operationId"])
                outsider.get(path.format_map(ids))
    assert len(tried) > 15
    assert opened == []


def test_rules_say_of_every_operation_on_releases_what_it_hands_out() -> None:
    handed = {name for name, rule in RULES.items() if rule.result}
    of_releases = {name for name, rule in RULES.items() if rule.scope in (Scope.RELEASES_READ, Scope.RELEASES_WRITE)}
    assert of_releases <= handed
    assert {name for name in handed if RULES[name].result == "review"} == {
        "getJobReport", "getJobSamples", "listJobArtifacts", "showJobSamples", "showJobReport",
    }  # fmt: skip


def test_another_tenant_decides_nothing(client: TestClient, services: Services, waiting: str) -> None:
    house = tenants.create(services.database, "other")
    stranger = another_caller(client, KeyRequest("Sue", tenant_id=house.id, role=Role.STEWARD))
    assert stranger.post(f"/v1/jobs/{waiting}:release", json=WHY).status_code == 404
    assert client.get(f"/v1/jobs/{waiting}").json()["approval"]["state"] == "waiting"


def test_images_of_a_result_that_waits_lead_nowhere(
    client: TestClient, services: Services, steward: TestClient, waiting: str
) -> None:
    pixel_hash = "ab" * 32
    with services.database.transaction() as session:
        session.add(ReleasedImageRow(pixel_hash=bytes.fromhex(pixel_hash), job_id=waiting))

    def find() -> list[str]:
        found = client.get("/v1/released-images", params={"pixel_hash": pixel_hash}).json()["items"]
        return [one["job_id"] for one in found]

    assert find() == []
    assert steward.post(f"/v1/jobs/{waiting}:release", json=WHY).status_code == 200
    assert find() == [waiting]
    assert steward.post(f"/v1/jobs/{waiting}:withhold", json=WHY).status_code == 200
    assert find() == []
