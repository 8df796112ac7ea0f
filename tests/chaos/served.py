"""What the faults with a name have in common: a stack, many clients, and what came of them in figures."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.store.jobs.jobs import Job, JobState
from deployments.deployment import QUICK, VOTES
from deployments.stack import CeleryStack, Stack

from .lost import find_lost, say_lost

Figures = dict[str, Any]

LONG: dict[str, Any] = {**VOTES, "method": {**VOTES["method"], "steps": 150}}
_CLIENTS = 60


class ServedByCommand(CeleryStack):
    """Its API is that of `datalens serve`, which bounds the heads of requests."""

    def api_command(self, port: int | None = None) -> tuple[str, ...]:
        options = ("--port", str(port or self.port), "--data-dir", str(self.folder))
        return ("datalens_service.cli", "serve", *options)


@contextmanager
def served(
    folder: Path, log: Path | None = None, kind: type[CeleryStack] = CeleryStack, **variables: str
) -> Iterator[CeleryStack]:
    """A stack with one API and one worker, while the block runs."""
    stack = kind(folder)
    stack.log = log or stack.log
    stack.changes |= variables
    try:
        stack.serve()
        yield stack
    finally:
        stack.close()


def find_faketime() -> Path:
    """Return the library that gives a process another clock.

    Raises:
        FileNotFoundError: The Debian package faketime is not installed.
    """
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        raise FileNotFoundError("install the Debian package faketime")
    return library


def ask(stack: Stack, paths: tuple[str, ...], seconds: float) -> list[tuple[int, float]]:
    """Status (0: none) and seconds of each answer to many clients, each of which asks again at once."""
    until = time.monotonic() + seconds

    def client(path: str) -> list[tuple[int, float]]:
        found = []
        with httpx2.Client(base_url=stack.url, headers=stack.headers, timeout=60) as http:
            while (began := time.monotonic()) < until:
                try:
                    status = http.get(path).status_code
                except httpx2.HTTPError:
                    status = 0
                found.append((status, time.monotonic() - began))
                time.sleep(1)
        return found

    with ThreadPoolExecutor(_CLIENTS) as threads:
        asked = threads.map(client, islice(cycle(paths), _CLIENTS))
        return [answer for answers in asked for answer in answers]


def read(stack: Stack, path: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{stack.url}{path}", headers=stack.headers, timeout=60).json()
    return found


def submit(stack: Stack, dataset_id: str) -> str:
    """The code of the problem that answers a submission; empty for one that is accepted."""
    body = {"dataset_id": dataset_id, "spec": QUICK, "accept_low_utility": True}
    return str(httpx2.post(f"{stack.url}/v1/jobs", json=body, headers=stack.headers, timeout=60).json().get("code", ""))


def summarize(answers: list[tuple[int, float]]) -> Figures:
    seconds = sorted(taken for _, taken in answers)
    counted = Counter(status for status, _ in answers)
    return {
        "answers": len(answers),
        "by_status": {str(status): count for status, count in sorted(counted.items()) if status},
        "no_answer": counted[0],
        "median_seconds": round(seconds[len(seconds) // 2], 2),
        "slowest_seconds": round(seconds[-1], 2),
    }


def read_books(stack: Stack, job: Job) -> Figures:
    """How the job ended, whether it lost its lease or paid for a step twice, and what was lost."""
    ended = stack.wait_for_end(job)
    charged = stack.charged_steps(job)
    if ended.state == JobState.SUCCEEDED:
        stack.assert_balanced(job)
    return {
        "job": ended.state.value,
        "leases": ended.lease_token,
        "charged": len(charged),
        "charged_again": len(charged) - len(set(charged)),
        "lost": say_lost(find_lost(stack)),
    }
