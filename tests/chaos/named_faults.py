"""Faults with a name, each once on a stack of its own, and what came of it in figures."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx2

from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import QUICK
from disks import small_disk

from .load import load
from .restored import failover, restored_backup
from .served import LONG, Figures, ask, read, read_books, served, submit, summarize
from .upgrade import upgrade
from .uploads import large_upload

_FROZEN_SECONDS = 45.0
_WITHIN_SECONDS = 5.0
_WATCHED_SECONDS = 20.0
_FAKE_CLOCK = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), Path("libfaketimeMT.so.1"))
"""Of the Debian package faketime."""


def frozen_database(folder: Path) -> Figures:
    """PostgreSQL and all its processes stand still for longer than a lease while a job charges and clients ask."""
    with served(folder) as stack:
        job = stack.order(LONG)
        stack.wait_for_steps(job, 10)
        with stack.postgresql.frozen():
            answers = ask(stack, ("/readyz", "/v1/jobs", "/v1/usage", "/livez"), _FROZEN_SECONDS)
        thawed = time.monotonic()
        stack.wait(stack.ready)
        ready = time.monotonic() - thawed
        figures = summarize(answers) | {"ready_after_seconds": round(ready, 1)} | read_books(stack, job)
    passed = figures["slowest_seconds"] <= _WITHIN_SECONDS and figures["no_answer"] == 0
    return figures | {"passed": passed and figures["leases"] == 1 and figures["charged_again"] == 0}


def frozen_broker(folder: Path) -> Figures:
    """Redis stands still: everything goes on, and the service says that it is degraded."""
    with served(folder) as stack:
        dataset = stack.new_dataset()
        with stack.redis.frozen():
            began = time.monotonic()
            job = stack.order(QUICK, dataset)
            submitted = time.monotonic() - began
            answers = ask(stack, ("/readyz", "/v1/jobs", f"/v1/jobs/{job.id}", "/livez"), _FROZEN_SECONDS)
            ended = stack.wait_for_end(job)
            said = httpx2.get(f"{stack.url}/readyz", timeout=60).json()
    figures = summarize(answers) | {"submission_seconds": round(submitted, 1), "job": ended.state.value} | said
    slowest = max(submitted, figures["slowest_seconds"])
    passed = figures["by_status"].keys() == {"200"} and "broker" in said["degraded"] and slowest <= _WITHIN_SECONDS
    return figures | {"passed": passed and ended.state == JobState.SUCCEEDED}


def job_that_kills_its_processes(folder: Path) -> Figures:
    """The first job of the queue kills each process before it has the job; another waits behind it."""
    poisoned = folder / "poisoned-jobs"
    path = os.pathsep.join([str(Path(__file__).parent / "poisoned"), os.environ.get("PYTHONPATH", "")])
    with served(folder, PYTHONPATH=path, POISONED_JOBS=str(poisoned)) as stack:
        datasets = [stack.new_dataset(), stack.new_dataset()]
        stack.kill_worker(stack.workers[0])
        bad, good = (stack.order(QUICK, dataset) for dataset in datasets)
        poisoned.write_text(bad.id)
        stack.start_worker()
        after, ended = stack.wait_for_end(good), stack.wait_for_end(bad)
        starts = len(Path(f"{poisoned}.starts").read_text().splitlines())
    assert after.started_at is not None
    assert ended.started_at is not None
    assert ended.error is not None
    delay = (after.started_at - ended.started_at).total_seconds()
    figures = {"starts": starts, "job": ended.state.value, "reason": ended.error["type"]}
    passed = starts == ended.attempts == 3 and after.state == JobState.SUCCEEDED
    return figures | {"next_job_started_after_seconds": delay, "passed": passed}


def full_disk(folder: Path) -> Figures:
    """The disk of data folder and charge log is full; PostgreSQL has another."""
    small = folder / "disk"
    small.mkdir()
    with small_disk(small) as disk, served(small, log=folder / "log") as stack:
        datasets = [stack.new_dataset(), stack.new_dataset()]
        stack.kill_worker(stack.workers[0])
        job = stack.order(QUICK, datasets[0])
        stack.start_worker()
        with disk.full():
            stack.wait(lambda: read(stack, f"/v1/jobs/{job.id}")["waiting_reason"] is not None)
            began, refused = time.monotonic(), submit(stack, datasets[1])
            seconds = time.monotonic() - began
            time.sleep(_WATCHED_SECONDS)
            ready = read(stack, "/readyz")
            lines = stack.log.read_text().count("no job is started")
            waiting = stack.job(job).state
        ended = stack.wait_for_end(job)
        figures = {"submission": refused, "seconds": round(seconds, 1), "ready": ready["status"], "log_lines": lines}
        figures |= {"waiting": waiting.value, "attempts": stack.job(job).attempts} | read_books(stack, job)
    passed = refused == "insufficient-storage" and lines < _WATCHED_SECONDS and ended.state == JobState.SUCCEEDED
    return figures | {"watched_seconds": _WATCHED_SECONDS, "passed": passed and figures["charged_again"] == 0}


def wrong_clocks(folder: Path) -> Figures:
    """One worker is ten minutes behind, another as much ahead until its clock is set back; each runs a job."""
    with served(folder) as stack:
        stack.kill_worker(stack.workers[0])
        for offset in ("-10m", "+10m"):
            (folder / offset).write_text(offset)
            clock = {"FAKETIME_TIMESTAMP_FILE": str(folder / offset), "FAKETIME_CACHE_DURATION": "1"}
            clock |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "LD_PRELOAD": str(_FAKE_CLOCK)}
            stack.workers.append(stack.start("-m", *stack.worker_command(), **clock))
        ordered = [stack.order(LONG) for _ in range(2)]
        for job in ordered:
            stack.wait_for_steps(job, 10)
        (folder / "+10m").write_text("-10m")
        books = [read_books(stack, job) for job in ordered]
        ended = [stack.job(job) for job in ordered]
    times = [(job.started_at, job.finished_at) for job in ended]
    seconds = [(end - begin).total_seconds() for begin, end in times if begin is not None and end is not None]
    figures = {"jobs": [one["job"] for one in books], "seconds": seconds} | {
        name: [one[name] for one in books] for name in ("leases", "charged_again")
    }
    return figures | {"passed": figures["leases"] == [1, 1] and figures["charged_again"] == [0, 0]}


FAULTS: dict[str, Callable[[Path], Figures]] = {
    "frozen database": frozen_database,
    "frozen broker": frozen_broker,
    "full disk": full_disk,
    "wrong clocks": wrong_clocks,
    "job that kills its processes": job_that_kills_its_processes,
    "upgrade": upgrade,
    "restored backup": restored_backup,
    "failover": failover,
    "large upload": large_upload,
    "load": load,
}
