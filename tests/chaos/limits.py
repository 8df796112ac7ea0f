"""Whoever asks for more than there is: announced uploads, quotas, wrong keys, connections, and a key that ended."""

import resource
import shutil
import socket
import string
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.api.uploads.tus import MEDIA_TYPE, VERSION
from datalens_service.store.access import keys, quotas
from datalens_service.store.access.access_log import LOCAL
from datalens_service.store.access.quotas import Quotas
from datalens_service.store.datasets.upload_room import SPARE_BYTES
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.schema.tables import DEFAULT_TENANT
from deployments.deployment import QUICK
from deployments.stack import Stack
from disks import small_disk

from .lost import find_lost, read_rows, say_lost
from .served import LONG, Figures, ServedByCommand, served, submit

_UPLOAD = 1_200_000_000
_FREE = 2_600_000_000
_AT_ONCE = 12
_BLOCK = bytes(2**20)
_REQUESTS = 100
_WRONG_KEYS = 350
_BEFORE_REFUSED = 10
_WINDOW_SECONDS = 10
_HEADS = 300
_FILES = 256
_CLOSED_WITHIN = 15.0
_STREAM_ENDS_WITHIN = 2.0


def announced_uploads(folder: Path) -> Figures:
    """One key announces twelve uploads of 1.2 GB at once on 2.6 GB, and sends what is accepted, while a job charges."""
    small = folder / "disk"
    small.mkdir()
    with small_disk(small, _FREE), served(small, log=folder / "log") as stack:
        job = stack.order(LONG)
        before = read_rows(stack.database)
        answers = at_once(lambda: _announce(stack))
        accepted = [place for status, place in answers if status == 201]
        sent = [_send(stack, place) for place in accepted]
        free = shutil.disk_usage(small).free
        refused = {place for status, place in answers if status != 201}
        ended = stack.wait_for_end(job)
        lost = find_lost(stack, before)
    figures = {"announced": _AT_ONCE, "accepted": len(accepted), "refused_as": sorted(refused), "sent": sent}
    figures |= {"free_bytes_afterwards": free, "job": ended.state.value, "lost": say_lost(lost)}
    kept = free >= SPARE_BYTES - 2**26 and refused == {"insufficient-storage"} and sent == [204] * len(accepted)
    return figures | {"passed": len(accepted) == 1 and kept and ended.state == JobState.SUCCEEDED and not lost}


def at_once(ask: Callable[[], Any], count: int = _AT_ONCE) -> list[Any]:
    """Do the same in so many threads, which begin together."""
    begin = threading.Barrier(count)

    def one(_: int) -> Any:
        begin.wait()
        return ask()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def _announce(stack: Stack) -> tuple[int, str]:
    """Status, and the place of the upload or the code of the problem."""
    headers = stack.headers | {"Tus-Resumable": VERSION, "Upload-Length": str(_UPLOAD)}
    reply = httpx2.post(f"{stack.url}/v1/uploads", headers=headers, timeout=60)
    return reply.status_code, reply.headers["Location"] if reply.status_code == 201 else reply.json()["code"]


def _send(stack: Stack, place: str) -> int:
    headers = {"Tus-Resumable": VERSION, "Upload-Offset": "0", "Content-Type": MEDIA_TYPE}
    whole, rest = divmod(_UPLOAD, len(_BLOCK))

    def blocks() -> Iterator[bytes]:
        yield from repeat(_BLOCK, whole)
        yield _BLOCK[:rest]

    headers |= stack.headers | {"Content-Length": str(_UPLOAD)}
    return httpx2.patch(f"{stack.url}{place}", content=blocks(), headers=headers, timeout=600).status_code


def exceeded_quotas(folder: Path) -> Figures:
    """A tenant with quotas asks for eight of everything at once."""
    with served(folder) as stack:
        dataset = stack.new_dataset()
        quotas.change(stack.database, DEFAULT_TENANT, Quotas(jobs=3, bytes=2**30), actor=LOCAL)
        stack.kill_worker(stack.workers[0])
        before = read_rows(stack.database)
        submitted = Counter(at_once(lambda: submit(stack, dataset), 8))
        announced = Counter(at_once(lambda: _announce(stack)[1], 8))
        quotas.change(stack.database, DEFAULT_TENANT, Quotas(requests_per_minute=60), actor=LOCAL)
        requests = Counter(
            httpx2.get(f"{stack.url}/v1/usage", headers=stack.headers, timeout=60).status_code for _ in range(_REQUESTS)
        )
        # What was refused reserved nothing: it is paid for once there is room.
        quotas.change(stack.database, DEFAULT_TENANT, Quotas(), actor=LOCAL)
        stack.start_worker()
        ended = [stack.wait_for_end(job).state for job in jobs.list_jobs(stack.database).items]
        lost = find_lost(stack, before)
    answered = {str(status): count for status, count in requests.items()}
    figures: Figures = {"jobs": dict(submitted), "uploads": dict(announced), "requests": answered}
    figures |= {"ended": len(ended), "lost": say_lost(lost)}
    kept = submitted == {"": 3, "quota-exceeded": 5} and announced == {"quota-exceeded": 8} and requests[429] > 0
    return figures | {"passed": kept and set(ended) == {JobState.SUCCEEDED} and len(ended) == 3 and not lost}


def wrong_keys(folder: Path) -> Figures:
    """One address tries 350 wrong keys while the right one works there."""
    with served(folder) as stack:
        before = read_rows(stack.database)
        job = stack.order(QUICK)
        wrong, right, began = Counter[int](), Counter[int](), time.monotonic()
        with httpx2.Client(base_url=stack.url, timeout=60) as http:
            for number in range(_WRONG_KEYS):
                headers = {"Authorization": f"Bearer {_invent_key(number)}"}
                reply = http.get("/v1/jobs", headers=headers)
                wrong[reply.status_code] += 1
                if number % 10 == 0:
                    right[http.get("/v1/jobs", headers=stack.headers).status_code] += 1
        seconds = time.monotonic() - began
        wait = reply.headers.get("Retry-After")
        ended = stack.wait_for_end(job)
        lost = find_lost(stack, before)
    figures = {"wrong": {str(status): count for status, count in wrong.items()}, "retry_after": wait}
    figures |= {"right": {str(k): n for k, n in right.items()}, "seconds": round(seconds, 1), "lost": say_lost(lost)}
    few = wrong[401] <= _BEFORE_REFUSED * (2 + seconds // _WINDOW_SECONDS) and wait is not None
    few = few and wrong.keys() == {401, 429}
    return figures | {"passed": few and right.keys() == {200} and ended.state == JobState.SUCCEEDED and not lost}


def _invent_key(number: int) -> str:
    """A key of the right form that nobody was given."""
    body = f"{number:0>4}".rjust(36, string.ascii_letters[number % 52])
    return f"dlk_{body}_{zlib.crc32(body.encode()):08x}"


def unfinished_heads(folder: Path) -> Figures:
    """300 connections with half a head are held open at an API that may have 256 files, while a job charges."""
    with served(folder, kind=ServedByCommand) as stack:
        assert stack.api is not None
        job = stack.order(LONG)
        before = read_rows(stack.database)
        stack.wait_for_steps(job, 5)
        resource.prlimit(stack.api.pid, resource.RLIMIT_NOFILE, (_FILES, _FILES))
        with ExitStack() as held:
            for _ in range(_HEADS):
                connection = held.enter_context(socket.create_connection(("127.0.0.1", stack.port), timeout=60))
                connection.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: service\r\n")
            began = time.monotonic()
            stack.wait(stack.ready)
            seconds = time.monotonic() - began
        ended = stack.wait_for_end(job)
        lost = find_lost(stack, before)
    figures = {"connections": _HEADS, "files": _FILES, "answers_again_after_seconds": round(seconds, 1)}
    figures |= {"job": ended.state.value, "lost": say_lost(lost)}
    return figures | {"passed": seconds <= _CLOSED_WITHIN and ended.state == JobState.SUCCEEDED and not lost}


def revoked_key(folder: Path) -> Figures:
    """A key is revoked while its event stream of a running job is open."""
    with served(folder) as stack:
        key, plain = keys.create(stack.database, "watcher")
        job = stack.order(LONG)
        stack.wait_for_steps(job, 5)
        before = read_rows(stack.database)
        headers = {"Authorization": f"Bearer {plain}", "Accept": "text/event-stream"}
        path = f"{stack.url}/v1/jobs/{job.id}/events"
        with httpx2.stream("GET", path, headers=headers, timeout=120) as stream:
            lines = stream.iter_lines()
            first = next(lines)
            keys.revoke(stack.database, key.id)
            began = time.monotonic()
            for _ in lines:
                pass
            seconds = time.monotonic() - began
        running = stack.job(job).state
        ended = stack.wait_for_end(job)
        lost = find_lost(stack, before)
    figures = {"first_line": first, "ended_after_seconds": round(seconds, 1), "job_then": running.value}
    passed = seconds <= _STREAM_ENDS_WITHIN and running is JobState.RUNNING and ended.state == JobState.SUCCEEDED
    return figures | {"lost": say_lost(lost), "passed": passed and not lost}
