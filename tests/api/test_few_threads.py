"""Kinds of handlers that share few threads, and wait for none of the others."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest
from event_loops import run_alone

from api.http.few_threads import FewThreads
from api.routes import jobs, plans

PATIENCE = 240


def test_so_many_run_at_once_and_all_run() -> None:
    few, lock, running, most = FewThreads("test", 3), threading.Lock(), 0, 0
    three = threading.Barrier(3)

    def handle(number: int, *, word: str) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if number < 3:
            three.wait(PATIENCE)
        with lock:
            running -= 1
        return f"{word} {number}"

    async def serve() -> list[str]:
        return await asyncio.gather(*(few.handler(handle)(number, word="job") for number in range(20)))

    # Each event loop has threads of its own.
    for _ in range(2):
        assert run_alone(serve()) == [f"job {number}" for number in range(20)]
    assert most == 3


def test_other_kinds_are_not_held_up() -> None:
    done = threading.Event()

    async def serve() -> None:
        plan = asyncio.create_task(FewThreads("plan", 1).run(lambda: done.wait(PATIENCE)))
        await FewThreads("read", 1).run(done.set)
        assert await plan

    run_alone(serve())


def test_errors_come_through() -> None:
    def refuse() -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        run_alone(FewThreads("test", 1).run(refuse))


@pytest.mark.parametrize("handler", [jobs.list_jobs, jobs.get_job, plans.create_plan])
def test_short_reads_run_in_few_threads(handler: object) -> None:
    assert inspect.iscoroutinefunction(handler)
