"""What an operator does or meets: a stop, workers that are all dead, a clock that differs, a broker that is full."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import psutil
import redis

from datalens_service.api.uploads.tus import MEDIA_TYPE, VERSION
from datalens_service.store.access import browser_sessions, keys
from datalens_service.store.jobs.jobs import Job
from deployments.deployment import QUICK
from deployments.stack import CeleryStack, LocalStack, Stack, is_ready
from ports import free_port

from .lost import find_lost, read_rows, say_lost
from .served import LONG, Figures, find_faketime, read, read_books, served

_ARRIVED = 300_000
_WHOLE = 1_000_000
_DRAIN_SECONDS = 20.0
_JOBS_STOP_WITHIN = 10.0
_SILENT_SECONDS = 60.0
_DAYS = (3, -1)
_LOOKED_AT_SECONDS = 15.0


class _ProcessTree(LocalStack):
    """`datalens serve` with SQLite and its own supervisor."""

    def api_command(self, port: int | None = None) -> tuple[str, ...]:
        options = ("--port", str(port or self.port), "--data-dir", str(self.folder))
        return ("datalens_service.cli", "serve", *options)

    def serve(self) -> None:
        self.start_api()
        self.wait(self.ready)


def one_stop(folder: Path) -> Figures:
    """`datalens serve` is told to stop while a job trains and one client is in the middle of a PATCH."""
    stack = _ProcessTree(folder)
    try:
        stack.serve()
        assert stack.api is not None
        job, before = stack.order(LONG), read_rows(stack.database)
        stack.wait_for_steps(job, 10)
        with _slow_patch(stack) as place:
            trainer = psutil.Process(stack.worker_pid(job))
            began = time.monotonic()
            os.kill(stack.api.pid, signal.SIGTERM)
            stack.wait(lambda: not trainer.is_running())
            job_seconds = time.monotonic() - began
            stack.api.wait()
            seconds = time.monotonic() - began
        stack.serve()
        offset = int(httpx2.head(f"{stack.url}{place}", headers=_tus(stack), timeout=60).headers["Upload-Offset"])
        books = read_books(stack, job)
        lost = find_lost(stack, before)
    finally:
        stack.close()
    figures = {"job_stopped_after_seconds": round(job_seconds, 1), "ended_after_seconds": round(seconds, 1)}
    figures |= {"bytes_sent": _ARRIVED, "bytes_kept": offset, **books, "lost": say_lost(lost)}
    passed = job_seconds <= _JOBS_STOP_WITHIN and seconds <= _DRAIN_SECONDS + 10 and offset == _ARRIVED
    return figures | {"passed": passed and books["charged_again"] == 0 and books["job"] == "succeeded" and not lost}


def _tus(stack: Stack) -> dict[str, str]:
    return stack.headers | {"Tus-Resumable": VERSION}


@contextmanager
def _slow_patch(stack: Stack) -> Iterator[str]:
    """A resumable upload of which a third has come; its place."""
    begun = httpx2.post(f"{stack.url}/v1/uploads", headers=_tus(stack) | {"Upload-Length": str(_WHOLE)}, timeout=60)
    place = begun.headers["Location"]
    head = _tus(stack) | {"Upload-Offset": "0", "Content-Type": MEDIA_TYPE, "Content-Length": str(_WHOLE)}
    lines = [f"PATCH {place} HTTP/1.1", "Host: service", *(f"{name}: {value}" for name, value in head.items())]
    with socket.create_connection(("127.0.0.1", stack.port), timeout=60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + b"x" * _ARRIVED)
        time.sleep(1)
        yield place


def dead_workers(folder: Path) -> Figures:
    """All workers and the process of a job are killed; much later, one worker starts."""
    with served(folder) as stack:
        running = stack.order(LONG)
        stack.wait_for_steps(running, 10)
        waiting = stack.order(QUICK)
        before = read_rows(stack.database)
        stack.kill_worker(stack.workers[0])
        stack.kill_job_process(running)
        began = time.monotonic()
        stack.wait(lambda: "workers" in read(stack, "/readyz")["degraded"])
        seconds = time.monotonic() - began
        shown = [read(stack, f"/v1/jobs/{job.id}") for job in (running, waiting)]
        stack.start_worker()
        books = [read_books(stack, job) for job in (running, waiting)]
        stack.wait(lambda: "workers" not in read(stack, "/readyz")["degraded"])
        lost = find_lost(stack, before)
    said = all("No worker has been alive since" in str(job["waiting_reason"]) for job in shown)
    left = shown[0]["progress"]["eta_seconds"]
    figures = {"told_after_seconds": round(seconds, 1), "jobs_say_so": said, "seconds_left": left}
    figures |= {name: [one[name] for one in books] for name in ("job", "leases", "charged_again")}
    passed = seconds <= _SILENT_SECONDS and said and left is None and figures["job"] == ["succeeded"] * 2
    # A step that was charged when its process died is charged again: whether it was seen is not known.
    return figures | {"lost": say_lost(lost), "passed": passed and max(figures["charged_again"]) <= 1 and not lost}


def differing_clock(folder: Path) -> Figures:
    """A second API host is three days ahead, then a day behind: uploads, sessions and keys end by the database."""
    with served(folder) as stack:
        stack.order(QUICK)
        with stack.client() as client:
            path, rng = folder / "review.npz", np.random.default_rng(0)
            np.savez(path, images=rng.integers(0, 256, (200, 8, 8), dtype=np.uint8), labels=np.arange(200) % 2)
            review = client.upload_dataset(path, epsilon=1.0)
        session = browser_sessions.sign_in(stack.database, stack.key)
        ended = keys.create(stack.database, "ended")
        keys.revoke(stack.database, ended[0].id)
        before, answers, told = read_rows(stack.database), [], []
        for days in _DAYS:
            with _another_api(stack, days) as url:
                time.sleep(_LOOKED_AT_SECONDS)
                told.append("clock" in httpx2.get(f"{url}/readyz", timeout=60).json()["degraded"])
                keys_of_both = [{"Authorization": f"Bearer {plain}"} for plain in (stack.key, ended[1])]
                asked = (httpx2.get(f"{url}/v1/jobs", headers=headers, timeout=60) for headers in keys_of_both)
                answers.append([answer.status_code for answer in asked])
        state = read(stack, f"/v1/datasets/{review.id}")["state"]
        is_open = browser_sessions.is_open(stack.database, session.token)
        with stack.client() as client:
            confirmed = client.confirm_dataset(review.id).state
        lost = [one for one in find_lost(stack, before) if "read upload" not in one]
    figures = {"days": list(_DAYS), "told": told, "statuses": answers, "upload": state, "session_open": is_open}
    passed = (
        told == [True] * 2 and answers == [[200, 401]] * 2 and is_open and (state, confirmed) == ("review", "ready")
    )
    return figures | {"lost": say_lost(lost), "passed": passed and not lost}


@contextmanager
def _another_api(stack: CeleryStack, days: int) -> Iterator[str]:
    """A second API of the same service, on a host whose clock differs."""
    port = free_port()
    variables = {"LD_PRELOAD": str(find_faketime()), "FAKETIME": f"{days:+d}d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    api = stack.start("-m", *stack.api_command(port), **variables)
    url = f"http://127.0.0.1:{port}"
    try:
        stack.wait(lambda: is_ready(url))
        yield url
    finally:
        api.kill()
        api.wait()


def full_broker(folder: Path) -> Figures:
    """Redis has reached `maxmemory` with `noeviction`, its queue is of another type, and messages are no JSON."""
    with served(folder) as stack, redis.Redis.from_url(stack.redis.url) as server:
        before = read_rows(stack.database)
        ended, told = list[Job](), list[bool]()
        server.config_set("maxmemory", 1)
        for spoil in (lambda: None, lambda: _garble(server)):
            spoil()
            stack.wait(lambda: bool(ended) or "broker" in read(stack, "/readyz")["degraded"])
            told.append("broker" in read(stack, "/readyz")["degraded"])
            ended.append(stack.wait_for_end(stack.order(QUICK)))
            server.config_set("maxmemory", 0)
        alive = stack.workers[0].poll() is None
        stack.wait(lambda: not read(stack, "/readyz")["degraded"])
        lost = find_lost(stack, before)
    figures = {"told": told[0], "jobs": [job.state.value for job in ended], "worker_alive": alive}
    figures |= {"waited_seconds": [round(_waited(job), 1) for job in ended], "lost": say_lost(lost)}
    return figures | {"passed": told[0] and alive and figures["jobs"] == ["succeeded"] * 2 and not lost}


def _garble(server: "redis.Redis[bytes]") -> None:
    server.set("gpu", "no list")
    for text in ("no JSON", "[]", "{}", b"\xff"):
        server.lpush("cpu", text)


def _waited(job: Job) -> float:
    assert job.started_at is not None
    return (job.started_at - job.created_at).total_seconds()
