"""A service in a folder of its own, and a small private image set."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from api_builders import npz
from starlette.testclient import TestClient

from api.deps import Services
from api.main import create_app
from datalens_service.data import decoder_for
from datalens_service.data.sandbox import decode, sandbox
from datalens_service.data.sandbox.exchange import OUTCOME
from datalens_service.settings import Settings
from datalens_service.store.access import keys


@pytest.fixture
def settings(tmp_path: Path, sqlite_template: Path) -> Settings:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    # A migrated database; migrating each time would take most of the time of these tests.
    shutil.copy(sqlite_template, data_dir)
    return Settings(data_dir=data_dir, max_upload_bytes=2**20)


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    """A caller with a valid key."""
    with TestClient(create_app(settings), base_url="http://service") as http:
        _, plain = keys.create(http.app.state.services.database, "test")
        http.headers["Authorization"] = f"Bearer {plain}"
        yield http


@pytest.fixture
def services(client: TestClient) -> Services:
    return client.app.state.services


@pytest.fixture(scope="session")
def records_read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the records of the usual upload are, once they were read."""
    return tmp_path_factory.mktemp("records") / "read"


@pytest.fixture
def dataset_id(client: TestClient, records_read: Path) -> str:
    """200 records in four classes with a budget of ε = 10."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "_run", partial(read_here, records_read))
        reply = client.post("/v1/datasets", files={"file": npz()}, data={"confirm_classes": "true", "epsilon": "10"})
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def read_here(before: Path, request: decode.RecordsRequest, *_limits: Any) -> int:
    """Once and in this process: to start one each time would take most of the time of these tests."""
    if not before.exists():
        outcome = decode.read_records(request, decoder_for(request.choices))
        (request.folder / OUTCOME).write_text(outcome.model_dump_json())
        shutil.copytree(request.folder, before)
    shutil.copytree(before, request.folder, dirs_exist_ok=True)
    return 0
