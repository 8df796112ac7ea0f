"""A data folder that version 1.0.0 made is served by this version in place: what was spent, released and allowed stays.

`seen.json` beside it has what version 1.0.0 answered to its owner about a data set, an ended and a waiting job.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_builders import claimed
from starlette.testclient import TestClient

from datalens_service.api.main import create_app
from datalens_service.api.security import signed_urls
from datalens_service.base.settings import Settings
from datalens_service.jobs.execute import execute
from datalens_service.proof.proof_verification import verify
from datalens_service.store.ledger.recovery import check_against_log

ARCHIVE = Path(__file__).parents[1] / "store" / "version_1_0_0" / "installation.tar.xz"


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return dict(json.loads((tmp_path / "seen.json").read_text()))


@pytest.fixture
def upgraded(seen: dict[str, Any]) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(data_dir=Path("installation"))), base_url="http://service") as http:
        http.headers["Authorization"] = f"Bearer {seen['key']}"
        yield http


def known(now: Any, before: Any) -> Any:
    """Of an answer, what version 1.0.0 had in its own."""
    if not isinstance(before, dict):
        return now
    return {name: known(now[name], value) for name, value in before.items()}


def test_key_accounts_jobs_and_files_are_as_before(upgraded: TestClient, seen: dict[str, Any]) -> None:
    for address, before in seen["answers"].items():
        now = upgraded.get(address).json()
        assert known(now, before) == before
    files = {name: upgraded.get(f"/v1/jobs/{seen['ended']}/artifacts/{name}").content for name in seen["files"]}
    assert {name: hashlib.sha256(content).hexdigest() for name, content in files.items()} == seen["files"]
    assert verify(files["account-proof.json"]).holds
    assert verify(upgraded.get(f"/v1/jobs/{seen['ended']}/bundle").content).holds
    assert upgraded.get(f"/v1/jobs/{seen['ended']}/synthetic").status_code == 200


def test_addresses_open_until_their_end(
    upgraded: TestClient, seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = datetime.fromisoformat(seen["link"]["expires_at"])
    del upgraded.headers["Authorization"]
    for seconds, status in ((-1, 200), (0, 403)):
        then = end + timedelta(seconds=seconds)
        monkeypatch.setattr(signed_urls, "read_database_clock", lambda _, then=then: then)
        assert upgraded.get(seen["link"]["url"]).status_code == status


def test_the_job_that_waited_runs_and_is_paid_from_what_was_left(upgraded: TestClient, seen: dict[str, Any]) -> None:
    services = upgraded.app.state.services
    spent = seen["answers"][f"/v1/datasets/{seen['dataset']}/privacy"]["epsilon_spent"]
    lease = claimed(services, seen["waiting"])
    assert execute(services.database, services.artifacts, services.settings, lease).state == "succeeded"
    account = upgraded.get(f"/v1/datasets/{seen['dataset']}/privacy").json()
    assert spent < account["epsilon_spent"] <= account["epsilon_limit"]
    assert verify(upgraded.get(f"/v1/jobs/{seen['waiting']}/bundle").content).holds
    assert check_against_log(services.database) == ()
