"""The account of a data set over HTTP: its journal in portions, and the one way to raise its limit.

An account that is frozen because its charge log knows more: the same honest figures wherever they are shown.
"""

from typing import Any

import pytest
from api_builders import bearer, browser, journal, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.proof.hash_chain import Entry, EntryKind, follow
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.charge_log import LogLine
from datalens_service.store.datasets import datasets
from datalens_service.store.ledger.account_summary import summarize_account
from datalens_service.store.ledger.recovery import check_against_log

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
    [noted] = [one for one in client.get("/v1/audit").json()["items"] if one["action"] == "raiseDatasetPrivacy"]
    assert (noted["action"], noted["object_id"]) == ("raiseDatasetPrivacy", dataset_id)
    assert noted["detail"].startswith("epsilon 10 to 12 at delta 1e-5: ")
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


def test_only_an_owner_raises(client: TestClient, dataset_id: str) -> None:
    headers = bearer(client, KeyRequest("runs jobs", role=Role.OPERATOR))
    path = f"/v1/datasets/{dataset_id}/privacy"
    reply = client.post(f"{path}:raise", json={"epsilon": 12, "reason": REASON}, headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (403, "forbidden")
    assert client.get(path, headers=headers).json()["epsilon_limit"] == 10


@pytest.fixture
def spent(services: Services, dataset_id: str) -> float:
    """ε of twice the budget, which the log knows as charged and the database does not."""
    with services.database.session() as session:
        account = summarize_account(session, dataset_id)
    line = LogLine(
        account_id=account.account_id, dataset_id=dataset_id, job_id="job_lost", step=0, label="votes",
        units=2 * account.limit_units, lease_token=1, seq=9, hash="0" * 64,
    )  # fmt: skip
    assert services.database.log is not None
    services.database.log.restore([line], 0)
    assert check_against_log(services.database) == (datasets.get(services.database, dataset_id).account_id,)
    return account.convert_to_epsilon(line.ledger_units)


def test_operations_metrics_and_the_page_state_what_the_log_knows(
    client: TestClient, dataset_id: str, spent: float
) -> None:
    dataset = client.get(f"/v1/datasets/{dataset_id}").json()["privacy"]
    account = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    plan = client.post("/v1/plans", json=training(dataset_id)).json()
    for budget in (dataset, account, plan["budget"]):
        assert spent > budget["epsilon_limit"] == 10
        assert (budget["epsilon_spent"], budget["epsilon_remaining"]) == (spent, 0.0)
        assert budget["units"]["charged"] == 2 * budget["units"]["limit"]
        assert (budget["units"]["remaining"], budget["frozen_reason"] is None) == (0, False)
        assert budget["mu_spent"] > 0
    assert plan["fits"] is False
    refused = client.post("/v1/jobs", json=training(dataset_id))
    assert (refused.status_code, refused.json()["code"]) == (500, "ledger-corrupt")
    lines = client.get("/metrics").text.splitlines()
    assert f'datalens_epsilon_spent{{dataset="{dataset_id}"}} {float(spent)!r}' in lines
    assert f'datalens_epsilon_remaining{{dataset="{dataset_id}"}} 0.0' in lines
    assert "datalens_accounts_frozen 1.0" in lines
    page = browser(client).get(f"/datasets/{dataset_id}").text
    assert f"<dd>ε {spent}</dd>" in page
    assert "Nothing can be spent." in page
