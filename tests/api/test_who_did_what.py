"""Jobs, ledgers and the audit journal name the key or person, for those who may know; the journal is filtered."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_builders import another_caller, browser, journal, one_of_everything, training
from sqlalchemy import update
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.base.errors import LedgerCorrupt
from datalens_service.services.journal_check import check_journals, knows_head
from datalens_service.store.access import access_log, keys
from datalens_service.store.access.access_log import EntryFilter
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import DEFAULT_TENANT, JobRow

NAME = "Maria, statistics"


@pytest.fixture
def operator(client: TestClient) -> TestClient:
    return another_caller(client, KeyRequest(NAME, role=Role.OPERATOR))


def key_id(services: Services, name: str) -> str:
    return next(key.id for key in keys.list_keys(services.database) if key.name == name)


def submitted(caller: TestClient, dataset_id: str) -> dict[str, Any]:
    reply = caller.post("/v1/jobs", json=training(dataset_id))
    assert reply.status_code == 202, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_a_job_names_who_submitted_it_to_those_who_read_the_journal(
    client: TestClient, operator: TestClient, services: Services, dataset_id: str
) -> None:
    job = submitted(operator, dataset_id)
    assert job["submitted_by"] is None
    maria = {"id": key_id(services, NAME), "name": NAME}
    assert client.get(f"/v1/jobs/{job['id']}").json()["submitted_by"] == maria
    [listed] = client.get("/v1/jobs").json()["items"]
    assert listed["submitted_by"] == maria
    clone = client.post(f"/v1/jobs/{job['id']}:clone").json()
    assert clone["submitted_by"] == {"id": key_id(services, "test"), "name": "test"}
    for path in (f"/jobs/{job['id']}", "/jobs", f"/datasets/{dataset_id}"):
        assert NAME in browser(client).get(path).text
        assert NAME not in browser(client, KeyRequest("operator", role=Role.OPERATOR)).get(path).text


def test_a_row_from_before_says_that_it_was_not_recorded(
    client: TestClient, services: Services, dataset_id: str
) -> None:
    job = submitted(client, dataset_id)
    with services.database.transaction() as session:
        session.execute(update(JobRow).values(submitted_by=None))
    assert client.get(f"/v1/jobs/{job['id']}").json()["submitted_by"] is None
    page = client.get(f"/v1/datasets/{dataset_id}/privacy/entries").json()
    assert page["spenders"] == [{"job_id": job["id"], "submitted_by": None}]
    for path in (f"/jobs/{job['id']}", f"/datasets/{dataset_id}"):
        assert "not recorded" in browser(client).get(path).text


def test_a_ledger_names_who_spent_beside_its_sealed_entries(
    client: TestClient, operator: TestClient, services: Services, dataset_id: str
) -> None:
    job = submitted(operator, dataset_id)
    path = f"/v1/datasets/{dataset_id}/privacy/entries"
    page = client.get(path).json()
    maria = {"id": key_id(services, NAME), "name": NAME}
    assert page["spenders"] == [{"job_id": job["id"], "submitted_by": maria}]
    seen = operator.get(path).json()
    assert (seen["items"], seen["spenders"]) == (page["items"], [])
    assert all("submitted_by" not in entry for entry in journal(client, dataset_id))


def address(path: str, ids: dict[str, str]) -> str:
    """With ids for the parameters that have one."""
    return re.sub(r"\{(\w+)\}", lambda part: ids.get(part[1], part[1]), path)


def test_names_of_persons_are_in_no_answer_to_keys_that_may_not_know(
    client: TestClient, services: Services, dataset_id: str, tmp_path: Path
) -> None:
    """Every read of everything, as an operator and as a consumer."""
    owner = another_caller(client, KeyRequest(NAME))
    owner.post("/v1/jobs", json=training(dataset_id))
    made = one_of_everything(owner, services, dataset_id, tmp_path)
    maria = key_id(services, NAME)
    paths = [path for path, methods in client.get("/openapi.json").json()["paths"].items() if "get" in methods]
    job_ids = [job["id"] for job in client.get("/v1/jobs").json()["items"]]
    made["name"] = "card.json"
    addresses = {address(path, {**made, "job_id": job_id}) for path in paths for job_id in job_ids}
    for role in (Role.OPERATOR, Role.CONSUMER):
        caller = another_caller(client, KeyRequest(str(role), role=role))
        for asked in addresses:
            told = caller.get(asked).text
            assert NAME not in told, asked
            # A link for a partner ends with the key that made it, so its id belongs to it.
            assert maria not in told or "link" in asked, asked


def test_the_journal_notes_who_submitted_what(
    client: TestClient, operator: TestClient, services: Services, dataset_id: str
) -> None:
    job = submitted(operator, dataset_id)
    [entry] = client.get("/v1/audit", params={"object_id": job["id"]}).json()["items"]
    assert (entry["actor"], entry["action"], entry["outcome"]) == (key_id(services, NAME), "createJob", 202)


@pytest.fixture
def noted(services: Services) -> datetime:
    """Twelve entries of two persons about three objects."""
    for number in range(12):
        access_log.note(
            services.database,
            DEFAULT_TENANT,
            actor=("local", key_id(services, "test"))[number % 2],
            action="lookAtTest",
            object_id=f"obj_{number % 3}",
            outcome=(200, 403, 503, 404)[number % 4],
        )
    return datetime.now(UTC)


FILTERED: tuple[tuple[dict[str, Any], list[int]], ...] = (
    ({}, list(range(1, 13))),
    ({"order": "newest", "limit": 3}, [12, 11, 10]),
    ({"order": "newest", "limit": 3, "before": 10}, [9, 8, 7]),
    ({"actor": "local"}, [1, 3, 5, 7, 9, 11]),
    ({"actor": "test"}, [2, 4, 6, 8, 10, 12]),
    ({"actor": "nobody"}, []),
    ({"object_id": "obj_2"}, [3, 6, 9, 12]),
    ({"outcome": "403"}, [2, 6, 10]),
    ({"outcome": "4xx"}, [2, 4, 6, 8, 10, 12]),
    ({"outcome": "5xx", "order": "newest"}, [11, 7, 3]),
    ({"since": "2020-01-01T00:00:00Z", "until": "2020-01-02T00:00:00Z"}, []),
    ({"since": "2020-01-01T00:00:00Z"}, list(range(1, 13))),
    ({"actor": "test", "object_id": "obj_1", "outcome": "4xx", "order": "newest"}, [8, 2]),
)


def test_the_journal_is_filtered_and_read_from_either_end(client: TestClient, noted: datetime) -> None:
    for params, numbers in FILTERED:
        page = client.get("/v1/audit", params=params).json()
        assert [entry["seq"] for entry in page["items"]] == numbers, params
        assert {actor["id"] for actor in page["actors"]} == {entry["actor"] for entry in page["items"]}, params
        assert {actor["name"] for actor in page["actors"]} <= {"test", None}, params


def test_newest_first_is_read_in_pages(client: TestClient, noted: datetime) -> None:
    found, before = [], None
    while True:
        params = {"order": "newest", "limit": 5, "actor": "local"} | ({} if before is None else {"before": before})
        page = client.get("/v1/audit", params=params).json()
        found += [entry["seq"] for entry in page["items"]]
        before = page["next_cursor"]
        assert page["has_more"] == (before is not None)
        if before is None:
            break
    assert found == [11, 9, 7, 5, 3, 1]


def test_what_is_no_filter_is_refused(client: TestClient) -> None:
    for params in ({"outcome": "refused"}, {"outcome": "9xx"}, {"since": "yesterday"}, {"order": "up"}):
        reply = client.get("/v1/audit", params=params)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), params


def test_the_page_filters_and_keeps_its_filters_from_page_to_page(
    client: TestClient, services: Services, noted: datetime
) -> None:
    for _ in range(60):
        access_log.note(
            services.database, DEFAULT_TENANT, actor="local", action="more", object_id="obj_many", outcome=200
        )
    visitor = browser(client)
    first = visitor.get("/journal", params={"object_id": "obj_many", "since": noted.date().isoformat()}).text
    assert first.count(">More</span>") == 50
    assert "/journal?actor=&amp;object_id=obj_many" in first
    second = visitor.get("/journal", params={"object_id": "obj_many", "before": 23}).text
    assert second.count(">More</span>") == 10
    assert "Older entries" not in second
    refused = visitor.get("/journal", params={"outcome": "4xx", "until": noted.date().isoformat()}).text
    assert (refused.count('<td class="right">403'), refused.count('<td class="right">404')) == (3, 3)
    assert "No entry matches." in visitor.get("/journal", params={"until": "2020-01-01"}).text
    assert visitor.get("/journal", params={"outcome": "<b>"}).status_code == 422


def test_filters_compare_times_with_both_ends(database: Database) -> None:
    access_log.note(database, DEFAULT_TENANT, actor="local", action="once", object_id=None)
    [entry], _ = access_log.list_entries(database, DEFAULT_TENANT)
    second = timedelta(seconds=1)
    for since, until, found in (
        (entry.at, None, 1),
        (entry.at + second, None, 0),
        (None, entry.at, 0),
        (None, entry.at + second, 1),
    ):
        which = EntryFilter(since=since, until=until)
        assert len(access_log.list_entries(database, DEFAULT_TENANT, which)[0]) == found
        assert len(access_log.list_latest(database, DEFAULT_TENANT, which)[0]) == found


def test_all_journals_are_checked_and_each_fault_is_named(
    client: TestClient, services: Services, dataset_id: str
) -> None:
    submitted(client, dataset_id)
    checked = list(check_journals(services.database))
    assert [(one.kind, one.fault) for one in checked] == [("audit journal", None), ("ledger", None)]
    assert all(knows_head(services.database, one.head_hash or "") for one in checked)
    assert not knows_head(services.database, "0" * 64)
    with services.database.transaction() as session:
        for sql in (
            "DROP TRIGGER audit_entries_no_update",
            "DROP TRIGGER ledger_entries_no_update",
            "UPDATE audit_entries SET actor = 'somebody' WHERE seq = 1",
            "UPDATE ledger_entries SET units = units - 1 WHERE kind = 'reserve'",
        ):
            session.connection().exec_driver_sql(sql)
    checked = [(one.kind, one.fault or "") for one in check_journals(services.database)]
    assert [kind for kind, _ in checked] == ["guard", "guard", "audit journal", "ledger"]
    faults = dict(checked)
    assert "Entry 1 of the audit journal" in faults["audit journal"]
    assert "Entry 2 of account" in faults["ledger"]
    with pytest.raises(LedgerCorrupt):
        access_log.verify(services.database, DEFAULT_TENANT)
