"""Many clients at once on two API processes, with a worker on the same machine and open streams of events."""

import asyncio
import itertools
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.store.access import keys
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import PATIENCE, QUICK, VOTES
from deployments.stack import CeleryStack
from ports import free_port

from .served import Figures, served

_CLIENTS = 50
_KEYS = 20
_STREAMS = 200
_SMALL = {**QUICK, "epsilon": 0.1}
_LONG = {**VOTES, "method": {**VOTES["method"], "steps": 5000, "top_k": 2}}
_ROUND = ("poll", "list", "poll", "plan", "poll", "download", "poll", "list", "usage", "poll")
"""What a client does, one after another; in one of ten rounds it submits a job."""

Answers = dict[str, list[tuple[int, float]]]


def load(folder: Path) -> Figures:
    """For three minutes, on a stack of its own."""
    with served(folder) as stack:
        return press(stack, 180.0)


def press(stack: CeleryStack, seconds: float) -> Figures:
    """50 clients with 20 keys, and 200 streams of events, on the API of a stack and a second one."""
    first, port, api = stack.url, stack.port, stack.api
    stack.port = free_port()
    stack.start_api()
    try:
        stack.wait(stack.ready)
        stand = _Stand(stack, (first, stack.url))
        with ThreadPoolExecutor(_CLIENTS + 1) as threads:
            until = time.monotonic() + seconds
            streams = threads.submit(asyncio.run, stand.listen(until))
            answered = [threads.submit(stand.work, number, until) for number in range(_CLIENTS)]
            found = _merge([one.result() for one in answered])
        with stack.client() as client:
            client.cancel(stand.long)
        ended = [stack.wait_for_end(jobs.get(stack.database, job)).state for job in stand.submitted]
    finally:
        stack.kill_api()
        stack.port, stack.api = port, api
    return _judge(found, seconds, ended, streams.result())


def _judge(found: Answers, seconds: float, ended: list[JobState], streams: dict[str, int]) -> Figures:
    statuses = Counter(status for answers in found.values() for status, _ in answers)
    lost = sum(state != JobState.SUCCEEDED for state in ended)
    return {
        "requests": statuses.total(),
        "per_second": round(statuses.total() / seconds, 1),
        "by_status": {str(status): count for status, count in sorted(statuses.items())},
        "milliseconds": {kind: _percentiles(answers) for kind, answers in sorted(found.items())},
        "streams": streams,
        "jobs": len(ended),
        "lost_jobs": lost,
        "load_average": os.getloadavg()[0],
        "passed": statuses.keys() <= {200, 202} and not lost and streams["cut"] == 0,
    }


class _Stand:
    """Keys, a data set, a job that has ended and one that runs on.

    Attributes:
        long: Id of the job that runs on.
        submitted: Ids of all that the clients ordered.
    """

    def __init__(self, stack: CeleryStack, addresses: tuple[str, ...]) -> None:
        self._addresses = addresses
        self._keys = [keys.create(stack.database, f"client-{number}")[1] for number in range(_KEYS)]
        self._dataset = stack.new_dataset()
        self._ended = stack.order(_SMALL, self._dataset).id
        stack.wait_for_end(jobs.get(stack.database, self._ended))
        self.long = stack.order(_LONG).id
        self.submitted: list[str] = []

    def work(self, number: int, until: float) -> Answers:
        """What one client asks, and after how many seconds it gets which status."""
        found: Answers = defaultdict(list)
        address, key = self._addresses[number % 2], self._keys[number % _KEYS]
        headers = {"Authorization": f"Bearer {key}"}
        with httpx2.Client(base_url=address, headers=headers, timeout=PATIENCE) as http:
            for kind in self._kinds(number):
                if (began := time.monotonic()) >= until:
                    return found
                answer = http.request(*self._request(kind), json=self._body(kind))
                found[kind].append((answer.status_code, time.monotonic() - began))
                if kind == "submit" and answer.status_code == 202:
                    self.submitted.append(answer.json()["id"])
        return found

    async def listen(self, until: float) -> dict[str, int]:
        """Streams that were open to the end, and events that came."""
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=PATIENCE, limits=limits) as http:
            read = [self._read_stream(http, number, until) for number in range(_STREAMS)]
            events = await asyncio.gather(*read)
        return {
            "open": sum(one is not None for one in events),
            "cut": events.count(None),
            "events": sum(filter(None, events)),
        }

    async def _read_stream(self, http: httpx2.AsyncClient, number: int, until: float) -> int | None:
        headers = {"Authorization": f"Bearer {self._keys[number % _KEYS]}", "Accept": "text/event-stream"}
        url, events = f"{self._addresses[number % 2]}/v1/jobs/{self.long}/events", 0
        try:
            async with asyncio.timeout(until - time.monotonic()), http.stream("GET", url, headers=headers) as stream:
                async for line in stream.aiter_lines():
                    events += line.startswith("data:")
        except TimeoutError:
            return events
        return None

    def _kinds(self, number: int) -> Iterator[str]:
        for turn in itertools.count(number):
            if turn % 10 == 0:
                yield "submit"
            yield from _ROUND

    def _request(self, kind: str) -> tuple[str, str]:
        return {
            "poll": ("GET", f"/v1/jobs/{self._ended}"),
            "list": ("GET", "/v1/jobs?limit=20"),
            "usage": ("GET", "/v1/usage"),
            "download": ("GET", f"/v1/jobs/{self._ended}/synthetic"),
            "plan": ("POST", "/v1/plans"),
            "submit": ("POST", "/v1/jobs"),
        }[kind]

    def _body(self, kind: str) -> dict[str, Any] | None:
        body = {"dataset_id": self._dataset, "spec": _SMALL}
        return {"plan": body, "submit": {**body, "accept_low_utility": True}}.get(kind)


def _merge(answers: list[Answers]) -> Answers:
    merged: Answers = defaultdict(list)
    for one in answers:
        for kind, found in one.items():
            merged[kind] += found
    return merged


def _percentiles(answers: list[tuple[int, float]]) -> list[int]:
    """The 50th, 95th and 99th."""
    seconds = sorted(taken for _, taken in answers)
    return [round(1000 * seconds[min(len(seconds) - 1, len(seconds) * share // 100)]) for share in (50, 95, 99)]
