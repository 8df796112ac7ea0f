"""A database under stress, and receivers that are silent: what others notice of it, in figures."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from sqlalchemy import create_engine, text

from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import PATIENCE
from deployments.pgbouncer import PgBouncer
from deployments.stack import SECRET, CeleryStack, LocalStack

from .served import LONG, Figures, ask, read, read_books, served, summarize

_LOCKED_SECONDS = 45.0
_READY_SECONDS = 3.0
_READS_SECONDS = 20.0
"""A connection and a lock are waited for, each for five seconds at most, and a thread for as long as others wait so."""

_MESSAGES = 40
_IMAGES = 66_000
_TIMEOUTS = {"lock_timeout": "30s", "idle_in_transaction_session_timeout": "60s"}


def locked_table(folder: Path) -> Figures:
    """Somebody changes a table that every request and every charge needs, for longer than a lease."""
    with served(folder) as stack:
        job = stack.order(LONG)
        stack.wait_for_steps(job, 10)
        engine = create_engine(stack.postgresql.url("service"))
        ready: list[tuple[int, float]] = []
        ended = threading.Event()
        with ThreadPoolExecutor(1) as threads, engine.begin() as changing:
            changing.execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
            looking = threads.submit(_watch_readiness, stack.url, ready, ended)
            answers = ask(stack, ("/v1/jobs", "/v1/usage", "/livez"), _LOCKED_SECONDS)
            ended.set()
            looking.result()
        engine.dispose()
        stack.wait(stack.ready)
        figures = summarize(answers) | {"ready": summarize(ready)} | read_books(stack, job)
    quick = figures["ready"]["slowest_seconds"] <= _READY_SECONDS and figures["ready"]["by_status"].keys() == {"200"}
    passed = quick and figures["slowest_seconds"] <= _READS_SECONDS and figures["no_answer"] == 0
    return figures | {"passed": passed and figures["job"] == JobState.SUCCEEDED}


def _watch_readiness(url: str, answers: list[tuple[int, float]], ended: threading.Event) -> None:
    while not ended.wait(1.0):
        began = time.monotonic()
        status = httpx2.get(f"{url}/readyz", timeout=60).status_code
        answers.append((status, time.monotonic() - began))


def behind_pgbouncer(folder: Path) -> Figures:
    """API, worker and job process reach PostgreSQL through a PgBouncer in transaction mode, which is killed once."""
    with served(folder) as stack:
        for name, value in _TIMEOUTS.items():
            stack.postgresql.execute(f"ALTER ROLE service SET {name} = '{value}'")
        pooler = PgBouncer(stack.postgresql.folder, {"service": SECRET})
        pooler.serve()
        stack.changes["DATALENS_DATABASE_URL"] = pooler.url("service", "service", SECRET)
        stack.kill_api()
        stack.kill_worker(stack.workers[0])
        stack.serve()
        try:
            job = stack.order(LONG)
            stack.wait_for_steps(job, 10)
            answers = ask(stack, ("/v1/jobs", "/v1/usage", f"/v1/jobs/{job.id}", "/readyz"), 15.0)
            pooler.kill()
            pooler.serve()
            stack.wait(stack.ready)
            figures = summarize(answers) | read_books(stack, job)
        finally:
            pooler.kill()
    passed = figures["by_status"].keys() == {"200"} and figures["no_answer"] == 0
    return figures | {"passed": passed and figures["job"] == JobState.SUCCEEDED}


def silent_receiver(folder: Path) -> Figures:
    """Forty messages wait for a receiver that takes connections and says nothing; then one goes to another."""
    with served(folder, DATALENS_WEBHOOKS_TO_PRIVATE_ADDRESSES="true") as stack, _listening() as urls:
        hooks = [_post(stack, "/v1/webhooks", {"url": url})["webhook"]["id"] for url in urls]
        for _ in range(_MESSAGES):
            _post(stack, f"/v1/webhooks/{hooks[0]}:test")
        time.sleep(3)
        began = time.monotonic()
        _post(stack, f"/v1/webhooks/{hooks[1]}:test")
        while read(stack, f"/v1/webhooks/{hooks[1]}/deliveries")["items"][0]["attempts"] == 0:
            time.sleep(0.1)
        seconds = time.monotonic() - began
    return {"messages": _MESSAGES, "other_after_seconds": round(seconds, 1), "passed": seconds <= _READY_SECONDS + 2}


def _post(stack: CeleryStack, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    reply = httpx2.post(f"{stack.url}{path}", json=body, headers=stack.headers, timeout=PATIENCE).raise_for_status()
    made: dict[str, Any] = reply.json()
    return made


@contextmanager
def _listening() -> Iterator[tuple[str, str]]:
    """Addresses of a server that says nothing, and of one that refuses every connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield tuple(f"http://127.0.0.1:{one.getsockname()[1]}/" for one in (silent, closed))  # type: ignore[misc]


def many_records(folder: Path) -> Figures:
    """An upload of 66,000 images is confirmed on SQLite, while clients read and one writes."""
    stack = LocalStack(folder)
    try:
        stack.serve()
        path = folder / "many.npz"
        images = np.random.default_rng(0).integers(0, 256, (_IMAGES, 28, 28), dtype=np.uint8)
        np.savez(path, images=images, labels=np.arange(_IMAGES) % 2)
        with stack.client() as client, ThreadPoolExecutor(2) as threads:
            waiting = client.upload_dataset(path, epsilon=1.0, delta=1e-6)
            ended = threading.Event()
            written: list[tuple[int, float]] = []
            writing = threads.submit(_write, stack, written, ended)
            reading = threads.submit(ask, stack, ("/v1/jobs", "/v1/usage"), 20.0)
            began = time.monotonic()
            client.confirm_dataset(waiting.id)
            seconds = time.monotonic() - began
            answers = reading.result()
            ended.set()
            writing.result()
    finally:
        stack.close()
    figures = {"confirmed_seconds": round(seconds, 1), "reads": summarize(answers), "writes": summarize(written)}
    passed = all(figures[name]["by_status"].keys() <= {"200", "201"} for name in ("reads", "writes"))
    return figures | {"passed": passed}


def _write(stack: LocalStack, answers: list[tuple[int, float]], ended: threading.Event) -> None:
    """Make one webhook after the other, which nobody gets a message by."""
    body = {"url": "https://example.org/"}
    while not ended.wait(0.1):
        began = time.monotonic()
        status = httpx2.post(f"{stack.url}/v1/webhooks", json=body, headers=stack.headers, timeout=60).status_code
        answers.append((status, time.monotonic() - began))
