"""Requests that find all threads, connections and tables in use: each gives up with its patience."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import isasyncgenfunction, iscoroutinefunction, unwrap
from typing import Any

import anyio.to_thread
import httpx2
import pytest
from api_builders import routes
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from sqlalchemy import text
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.api.rest import jobs as job_operations
from datalens_service.base.settings import Settings
from datalens_service.store import patience
from datalens_service.store.database import Database
from deployments.postgresql import Cluster
from in_process_service import InProcessService

LONG = 240
TEMPLATE = "datalens_template"


def list_calls(dependant: Dependant) -> Iterator[Any]:
    yield dependant.call
    for one in dependant.dependencies:
        yield from list_calls(one)


def waits_by_itself(call: Any) -> bool:
    """Return True if the framework runs it without a thread of its own choice."""
    inner = call if iscoroutinefunction(call) or isasyncgenfunction(call) else type(call).__call__
    return iscoroutinefunction(inner) or isasyncgenfunction(inner)


@pytest.mark.parametrize("route", [one for one in routes(create_app()) if isinstance(one, APIRoute)], ids=str)
def test_no_operation_or_dependency_waits_for_a_thread_without_an_end(route: APIRoute) -> None:
    assert [unwrap(call) for call in list_calls(route.dependant) if not waits_by_itself(call)] == []


def test_no_answer_to_an_error_waits_for_a_thread() -> None:
    handlers = create_app().exception_handlers.values()
    assert [one for one in handlers if not iscoroutinefunction(one)] == []


def test_a_request_that_finds_no_thread_is_told_to_repeat(
    client: TestClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end = threading.Event(), threading.Event()

    def hold(*_: Any, **__: Any) -> Any:
        begun.set()
        assert end.wait(LONG)
        raise KeyError

    assert client.portal is not None
    limiter = client.portal.call(_limiter)
    threads = limiter.total_tokens
    monkeypatch.setattr(job_operations.jobs, "list_jobs", hold)
    with ThreadPoolExecutor(1) as others:
        try:
            limiter.total_tokens = 1
            first = others.submit(client.get, "/v1/jobs")
            assert begun.wait(LONG)
            monkeypatch.setattr(patience, "SECONDS", 0.1)
            refused = [client.get(path) for path in ("/v1/datasets", "/v1/jobs", "/jobs")]
            alive = client.get("/livez")
        finally:
            end.set()
            limiter.total_tokens = threads
        first.result(LONG)
    assert [one.status_code for one in (*refused, alive)] == [503, 503, 503, 200]
    assert refused[0].json()["code"] == "store-unavailable"
    assert "threads" in refused[0].json()["detail"]
    assert all(int(one.headers["Retry-After"]) > 0 for one in refused[:2])
    assert client.get("/v1/datasets").status_code == 200
    assert limiter.borrowed_tokens == 0
    assert not services.limits._in_flight


async def _limiter() -> anyio.CapacityLimiter:
    return anyio.to_thread.current_default_thread_limiter()


@pytest.mark.postgres
def test_a_locked_table_and_a_full_pool_are_waited_for_together(
    settings: Settings, postgresql: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more requests than threads, and more threads than connections."""
    monkeypatch.setattr(patience, "SECONDS", 2.0)
    url = postgresql.new_database(TEMPLATE)
    service = InProcessService(settings.model_copy(update={"database_url": url, "database_connections": 2}))
    database = Database(url)
    key = {"Authorization": f"Bearer {service.api_key}"}

    def ask(_: int) -> httpx2.Response:
        return httpx2.get(f"{service.url}/v1/jobs", headers=key, timeout=LONG)

    try:
        with ThreadPoolExecutor(60) as clients:
            with database.transaction() as session:
                session.execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
                answers = list(clients.map(ask, range(60)))
            assert {(one.status_code, one.json()["code"]) for one in answers} == {(503, "store-unavailable")}
            assert all(int(one.headers["Retry-After"]) > 0 for one in answers)
            assert ask(0).status_code == 200
    finally:
        database.dispose()
        service.stop()
