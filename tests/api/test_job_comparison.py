"""Two jobs side by side, and the list of jobs narrowed down."""

from pathlib import Path

import api_builders
import pytest
from api_builders import browser, succeed, training
from starlette.testclient import TestClient
from test_job_quality import PRIVATE, PUBLIC, report_with_figures, visit

from datalens_service.api.deps import Services
from datalens_service.api.pages.views.comparison import name_parameter
from datalens_service.store.access import tenants
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.schema.service_tables import AuditEntryRow
from datalens_service.store.schema.tables import DatasetRow, JobRow

HOW = "Tick exactly two in the list of jobs, then press “Compare two ticked jobs” below it."


@pytest.fixture
def pair(
    client: TestClient, services: Services, dataset_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """A finished job and one that waits, which differ in ε and seed."""
    monkeypatch.setattr(api_builders, "report", report_with_figures)
    bodies = (training(dataset_id, epsilon=1.0, seed=1), training(dataset_id, epsilon=2.5, seed=2))
    first, second = (client.post("/v1/jobs", json=body).json()["id"] for body in bodies)
    succeed(services, first, tmp_path)
    return str(first), str(second)


def compare(client: TestClient, *job_ids: str) -> tuple[int, str]:
    answer = client.get("/jobs/compare", params={"job": list(job_ids)})
    return answer.status_code, answer.text


def test_figures_and_parameters_that_differ_stand_side_by_side(client: TestClient, pair: tuple[str, str]) -> None:
    status, page = compare(visit(client, Role.OWNER), *pair)
    assert status == 200
    assert PUBLIC in page
    assert PRIVATE in page
    assert "for you alone" in page
    assert page.count("/samples.png") == 1
    assert ">ε requested<" in page
    assert ">2.5<" in page
    assert ">δ asked for<" not in page
    assert "other-data" not in page


def test_that_an_owner_saw_private_figures_is_noted(
    client: TestClient, services: Services, pair: tuple[str, str]
) -> None:
    compare(visit(client, Role.OWNER), *pair)
    with services.database.session() as session:
        assert "seeQuality" in {row.action for row in session.query(AuditEntryRow)}


def test_an_operator_sees_no_private_figure(client: TestClient, pair: tuple[str, str]) -> None:
    status, page = compare(visit(client, Role.OPERATOR), *pair)
    assert status == 200
    assert PUBLIC in page
    assert PRIVATE not in page


def test_parameters_are_named_in_words() -> None:
    assert name_parameter("method.warm_start.num_components") == "Number of components of warm start"
    assert name_parameter("seed") == "Seed"


def test_figures_of_different_data_sets_are_said_not_to_compare(
    client: TestClient, services: Services, pair: tuple[str, str], dataset_id: str
) -> None:
    visitor = visit(client, Role.OWNER)
    with services.database.transaction() as session:
        one = session.get_one(DatasetRow, dataset_id)
        columns = {column.key: getattr(one, column.key) for column in DatasetRow.__table__.columns}
        session.add(DatasetRow(**columns | {"id": "ds_" + "0" * 20}))
        session.flush()
        session.get_one(JobRow, pair[1]).dataset_id = "ds_" + "0" * 20
    assert "other-data" in compare(visitor, *pair)[1]


def test_only_two_jobs_can_be_compared(client: TestClient, pair: tuple[str, str]) -> None:
    visitor = visit(client, Role.OWNER)
    unknown = "job_" + "0" * 20
    for chosen, complaint in (
        ((), "No job is chosen."),
        (pair[:1], "Only one job is chosen."),
        ((pair[0], pair[0]), "Only one job is chosen."),
        ((*pair, unknown), "3 jobs are chosen."),
    ):
        status, page = compare(visitor, *chosen)
        assert status == 422
        assert complaint in page
        assert HOW in page
        assert "members" not in page, "that is a word of the REST API"
        assert 'href="/jobs">To the jobs' in page
    status, page = compare(visitor, pair[0], unknown)
    assert status == 404
    assert HOW in page


def test_a_job_of_another_tenant_does_not_exist(client: TestClient, services: Services, pair: tuple[str, str]) -> None:
    other = tenants.create(services.database, "other")
    status, page = compare(browser(client, KeyRequest("stranger", tenant_id=other.id)), *pair)
    assert status == 404
    assert "not among yours" in page
    assert HOW in page


def test_the_list_is_narrowed_by_state_method_and_data_set(
    client: TestClient, pair: tuple[str, str], dataset_id: str
) -> None:
    def listed(**query: str) -> set[str]:
        return {item["id"] for item in client.get("/v1/jobs", params=query).json()["items"]}

    assert listed(method="moments") == set(pair)
    assert listed(method="mixture") == set()
    visitor = visit(client, Role.OWNER)
    for query, shown in (
        ("state=queued", pair[1:]),
        ("state=&method=moments&dataset=", pair),
        (f"dataset={dataset_id}&state=succeeded", pair[:1]),
        ("method=mixture", ()),
    ):
        page = visitor.get(f"/jobs?{query}").text
        assert {job_id for job_id in pair if f'value="{job_id}"' in page} == set(shown)
    assert "No job matches." in visitor.get("/jobs?method=mixture").text
    assert visitor.get("/jobs?state=unheard").status_code == 422
