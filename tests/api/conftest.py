"""A service in a folder of its own, and a small private image set."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_builders import bearer, send_images
from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from child_programs import without_processes
from datalens_service.api.application import _Application
from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.base.settings import Settings
from in_process_service import InProcessService

__all__ = ["without_processes"]


@pytest.fixture(scope="session", autouse=True)
def routes_are_taken_apart_once() -> Iterator[None]:
    """A thousand services have the same routes; FastAPI would analyse them for each."""
    include, included, first = FastAPI.include_router, dict[int, BaseRoute](), list[FastAPI]()

    def include_once(app: FastAPI, router: APIRouter, **shared: Any) -> None:
        if id(router) in included:
            app.router.routes.append(included[id(router)])
        else:
            include(app, router, **shared)
            included[id(router)] = app.routes[-1]
            first.append(app)
        # There, routes look for what a test puts in the place of a dependency.
        first[0].dependency_overrides = app.dependency_overrides

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Application, "include_router", include_once)
        yield


@pytest.fixture
def settings(store_path: Path, sqlite_template: Path) -> Settings:
    data_dir = store_path / "data"
    data_dir.mkdir()
    # A migrated database; migrating each time would take most of the time of these tests.
    shutil.copy(sqlite_template, data_dir)
    return Settings(data_dir=data_dir, max_upload_bytes=2**20)


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    """A caller with a valid key."""
    with TestClient(create_app(settings), base_url="http://service") as http:
        http.headers.update(bearer(http))
        yield http


@pytest.fixture
def services(client: TestClient) -> Services:
    return client.app.state.services


@pytest.fixture
def service(settings: Settings) -> Iterator[InProcessService]:
    """The same behind a real socket."""
    running = InProcessService(settings)
    yield running
    running.stop()


@pytest.fixture
def dataset_id(client: TestClient) -> str:
    """200 records in four classes with a budget of ε = 10."""
    reply = send_images(client)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])
