"""A list asks the database as often for many rows as for few."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_builders import application, description, routes
from sqlalchemy import Engine, event
from starlette.testclient import TestClient

from datalens_service.api.deps import MAXIMUM_PAGE
from datalens_service.api.main import create_app
from datalens_service.base.settings import Settings
from datalens_service.store.access import keys
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.database import Database
from tests.store.test_growth import grow

ROWS = (3, 30)
OF_ONE = ("/datasets/ds_1", "/datasets/ds_1/new-job", "/jobs/job_1_0", "/jobs/compare?job=job_1_0&job=job_0_0")
NO_PAGES = {"/jobs/compare", "/sign-in/oidc", "/sign-in/oidc/callback"}
"""Need a choice, or a provider."""
MORE = {"/jobs": 25 - 4}
"""A page has 25 reports, which are files; with few rows, four."""


def address(path: str) -> str:
    operation = description()["paths"].get(path, {}).get("get", {})
    names = {one["name"] for one in operation.get("parameters", [])}
    if "pixel_hash" in names:
        return f"{path}?pixel_hash={'0' * 64}"
    return f"{path}?limit={MAXIMUM_PAGE}" if "limit" in names else path


LISTS = {route.path for route in routes(application()) if "GET" in route.methods and "{" not in route.path}
PATHS = sorted({*LISTS, *OF_ONE} - NO_PAGES)


@pytest.fixture(scope="module")
def clients(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TestClient]]:
    """Services with few and with many data sets, each of which has one job with its model."""
    opened = []
    for rows in ROWS:
        folder = tmp_path_factory.mktemp("rows")
        shutil.copy(sqlite_template, folder / "datalens.db")
        database = Database(f"sqlite:///{folder / 'datalens.db'}", ChargeLog(folder / "ledger.log"))
        grow(database, folder, rows, rows)
        _, plain = keys.create(database, "owner")
        database.dispose()
        client = TestClient(create_app(Settings(data_dir=folder)), base_url="http://service")
        client.__enter__()
        client.post("/sign-in", data={"key": plain})
        opened.append(client)
    yield opened
    for client in opened:
        client.__exit__()


def count_statements(client: TestClient, path: str) -> int:
    """Of the request alone, the second time."""
    statements = 0

    def count(*_: Any) -> None:
        nonlocal statements
        statements += threading.current_thread().name.startswith("AnyIO worker")

    assert client.get(path).status_code == 200
    event.listen(Engine, "before_cursor_execute", count)
    try:
        client.get(path)
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    return statements


def test_there_are_lists() -> None:
    assert len(PATHS) > 20


@pytest.mark.parametrize("path", PATHS)
def test_more_rows_take_no_more_statements(clients: list[TestClient], path: str) -> None:
    few, many = (count_statements(client, address(path)) for client in clients)
    assert many <= few + MORE.get(path, 0)
