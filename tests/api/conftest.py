"""A service in a folder of its own, and a small private image set."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from api_builders import npz
from starlette.testclient import TestClient

from api.deps import Services
from api.main import create_app
from datalens_service.data.sandbox import sandbox
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
    """Where the confined process left the records of the usual upload, once it has run."""
    return tmp_path_factory.mktemp("records") / "read"


@pytest.fixture
def dataset_id(client: TestClient, records_read: Path) -> str:
    """200 records in four classes with a budget of ε = 10."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "_run", partial(read_once, sandbox._run, records_read))
        reply = client.post("/v1/datasets", files={"file": npz()}, data={"confirm_classes": "true", "epsilon": "10"})
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def read_once(run: Callable[..., int], before: Path, request: sandbox.Request, *limits: Any) -> int:
    """Starting a process for the same file each time would take most of the time of these tests."""
    if before.exists():
        shutil.copytree(before, request.folder, dirs_exist_ok=True)
        return 0
    status = run(request, *limits)
    if status == 0:
        shutil.copytree(request.folder, before)
    return status
