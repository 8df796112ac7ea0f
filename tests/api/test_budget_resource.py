"""The account of a data set over HTTP: its journal in portions, and the one way to raise its limit."""

from typing import Any

from api_builders import journal, training
from starlette.testclient import TestClient

from api.deps import Services
from datalens_service.proof.hash_chain import Entry, EntryKind, follow
from datalens_service.store.access.keys import KeyRequest, create
from datalens_service.store.access.roles import Role

REASON = "Second study, agreed with the data protection officer."


def raised(client: TestClient, dataset_id: str, **members: Any) -> Any:
    return client.post(f"/v1/datasets/{dataset_id}/privacy:raise", json={"epsilon": 12, "reason": REASON, **members})


def test_journal_comes_in_portions_and_by_kind(client: TestClient, dataset_id: str) -> None:
    for _ in range(3):
        client.post("/v1/jobs", json=training(dataset_id))
    path = f"/v1/datasets/{dataset_id}/privacy/entries"
    first = client.get(path, params={"limit": 3}).json()
    rest = client.get(path, params={"after": first["next_cursor"]}).json()
    whole = first["items"] + rest["items"]
    assert [entry["kind"] for entry in whole] == ["open", "reserve", "reserve", "reserve"]
    assert (first["has_more"], rest["has_more"]) == (True, False)
    account = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    assert (account["last_entry"], account["head_hash"]) == (4, whole[-1]["hash"])
    assert account["links"]["entries"] == path
    assert "entries" not in account, "a journal has no bound, an answer should have one"
    only = client.get(path, params={"kind": "reserve"}).json()["items"]
    assert [entry["seq"] for entry in only] == [2, 3, 4]


def test_raising_is_on_both_journals_and_makes_room(client: TestClient, dataset_id: str) -> None:
    client.post("/v1/jobs", json=training(dataset_id, epsilon=10))
    assert client.post("/v1/jobs", json=training(dataset_id, epsilon=2)).json()["code"] == "privacy-budget-exceeded"
    before = client.get(f"/v1/datasets/{dataset_id}").json()["privacy"]
    after = raised(client, dataset_id).json()
    assert after["epsilon_limit"] == 12
    assert (after["units"]["charged"], after["units"]["reserved"]) == (
        before["units"]["charged"],
        before["units"]["reserved"],
    )
    assert client.get(f"/v1/datasets/{dataset_id}").json()["privacy"] == after
    assert client.post("/v1/jobs", json=training(dataset_id, epsilon=2)).status_code == 202
    account = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    entries = journal(client, dataset_id)
    balance = follow(Entry.model_validate(entry) for entry in entries)
    assert balance.limit == account["units"]["limit"] > before["units"]["limit"]
    [entry] = [entry for entry in entries if entry["kind"] == EntryKind.RAISE]
    assert entry["label"].startswith("epsilon=12.0 delta=")
    assert REASON not in str((account, entries)), "the journal of the account is public"
    noted = client.get("/v1/audit").json()["items"][-1]
    assert (noted["action"], noted["object_id"]) == ("raiseDatasetPrivacy", dataset_id)
    assert noted["detail"].startswith("epsilon 10.0 to 12.0 at delta ")
    assert noted["detail"].endswith(REASON)


def test_a_limit_is_never_lowered(client: TestClient, dataset_id: str) -> None:
    for epsilon in [10, 9.999, 1]:
        before = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
        reply = raised(client, dataset_id, epsilon=epsilon)
        assert (reply.status_code, reply.json()["code"]) == (409, "state-conflict"), epsilon
        assert client.get(f"/v1/datasets/{dataset_id}/privacy").json() == before
        assert "raiseDatasetPrivacy" not in client.get("/v1/audit").text


def test_what_is_no_wish_to_raise_is_refused(client: TestClient, dataset_id: str) -> None:
    for members in [{"reason": "why not"}, {"reason": "\x00" * 20}, {"epsilon": 101}, {"delta": 0.1}]:
        assert raised(client, dataset_id, **members).status_code == 422, members


def test_only_an_owner_raises(client: TestClient, services: Services, dataset_id: str) -> None:
    _, plain = create(services.database, KeyRequest("runs jobs", role=Role.OPERATOR))
    headers = {"Authorization": f"Bearer {plain}"}
    path = f"/v1/datasets/{dataset_id}/privacy"
    reply = client.post(f"{path}:raise", json={"epsilon": 12, "reason": REASON}, headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (403, "forbidden")
    assert client.get(path, headers=headers).json()["epsilon_limit"] == 10
