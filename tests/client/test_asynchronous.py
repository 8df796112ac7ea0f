"""The client for asyncio is the synchronous one to its users, and a cancelled call keeps nobody waiting."""

import asyncio
import inspect
import socket
from typing import get_type_hints

import pytest

from datalens_service.client import AsyncClient, AsyncJobHandle, Client, JobHandle
from tests.api.event_loops import run_alone

PAIRS = [(AsyncClient, Client), (AsyncJobHandle, JobHandle)]


def list_methods(kind: type) -> dict[str, object]:
    """Public functions of a class, without pydantic's."""
    members = inspect.getmembers(kind, inspect.isfunction)
    return {name: member for name, member in members if name[0] != "_" and "client" in member.__module__}


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_both_clients_have_the_same_methods_arguments_and_docstrings(asynchronous: type, synchronous: type):
    twins = list_methods(asynchronous)
    assert len(twins) > 5
    assert twins.keys() == list_methods(synchronous).keys()
    for name, method in list_methods(synchronous).items():
        assert list(inspect.signature(method).parameters) == list(inspect.signature(twins[name]).parameters)
        assert inspect.getdoc(method) == inspect.getdoc(twins[name])


@pytest.mark.parametrize("kind", [AsyncClient, Client, AsyncJobHandle, JobHandle])
def test_every_method_has_types_that_resolve(kind: type):
    for method in list_methods(kind).values():
        assert "return" in get_type_hints(method)


def test_a_cancelled_call_and_one_beside_it_keep_nobody_waiting() -> None:
    async def ask(url: str) -> None:
        async with AsyncClient(url, timeout=60) as client:
            calls = [asyncio.create_task(client.get_job(f"job_{number}")) for number in range(40)]
            connections = [await asyncio.to_thread(listener.accept) for _ in calls]
            for call in calls:
                call.cancel()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended)
            for connection, _ in connections:
                connection.close()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        run_alone(ask(f"http://127.0.0.1:{listener.getsockname()[1]}"))
