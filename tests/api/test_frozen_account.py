"""An account that is frozen because its charge log knows more: the same honest figures wherever they are shown."""

import pytest
from api_builders import training
from starlette.testclient import TestClient

from api.deps import Services
from api.pages.views import formatting
from datalens_service.store.access import keys
from datalens_service.store.charge_log import LogLine
from datalens_service.store.datasets import datasets
from datalens_service.store.ledger.account_summary import summarize_account
from datalens_service.store.ledger.recovery import check_against_log


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
    return account.convert_units(line.units)


def test_the_api_states_what_the_log_knows(client: TestClient, dataset_id: str, spent: float) -> None:
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


def test_metrics_state_what_the_log_knows(client: TestClient, dataset_id: str, spent: float) -> None:
    lines = client.get("/metrics").text.splitlines()
    assert f'datalens_epsilon_spent{{dataset="{dataset_id}"}} {spent}' in lines
    assert f'datalens_epsilon_remaining{{dataset="{dataset_id}"}} 0.0' in lines
    assert "datalens_accounts_frozen 1.0" in lines


def test_the_page_states_what_the_log_knows(
    client: TestClient, services: Services, dataset_id: str, spent: float
) -> None:
    del client.headers["Authorization"]
    client.post("/sign-in", data={"key": keys.create(services.database, "visitor")[1]})
    page = client.get(f"/datasets/{dataset_id}").text
    assert f"<dd>ε {formatting.spent(spent)}</dd>" in page
    assert "Nothing can be spent." in page
