"""Faults with a name, each once on a stack of its own, and what came of it in figures."""

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.jobs.jobs import Job, JobState
from deployments.deployment import QUICK
from deployments.stack import CeleryStack
from disks import small_disk

from .limits import announced_uploads, exceeded_quotas, revoked_key, unfinished_heads, wrong_keys
from .load import load
from .operation import dead_workers, differing_clock, full_broker, one_stop
from .removed import interrupted_removal
from .restored import failover, restored_backup
from .rolling import rolling_upgrade
from .served import LONG, Figures, ask, find_faketime, read, read_books, served, submit, summarize
from .stressed import behind_pgbouncer, locked_table, many_records, silent_receiver
from .transport import wrong_authority
from .upgrade import upgrade
from .uploads import large_upload

_FROZEN_SECONDS = 45.0
_WITHIN_SECONDS = 5.0
_WATCHED_SECONDS = 20.0
_SPACE = 5 * 2**30
"""Libraries alone take almost four of them."""
_OFFSETS = ("+10m", "-10m")
_CLOCK_OF_A_WORKER = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_CACHE_DURATION": "1"}
"""Timers go on evenly, as they do where an operator sets the clock of a machine."""


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


def too_little_memory(folder: Path) -> Figures:
    """A worker may have an address space of five GiB: one job does not fit into it, another is refused uncharged."""
    path = folder / "many-classes.npz"
    images = np.random.default_rng(0).integers(0, 256, (1000, 32, 32), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(1000) % 50)
    with served(folder) as stack:
        stack.kill_worker(stack.workers[0])
        worker = stack.start("-m", *stack.worker_command())
        resource.prlimit(worker.pid, resource.RLIMIT_AS, (_SPACE, _SPACE))
        stack.workers.append(worker)
        with stack.client() as client:
            dataset = client.upload_dataset(path, epsilon=40.0, confirm_classes=True).id
        ended = [stack.wait_for_end(stack.order(_wide(components), dataset)) for components in (8, 64)]
        later = read_books(stack, stack.order(QUICK))
    said = [job.error["detail"] if job.error else "" for job in ended]
    reasons = [job.error["type"] if job.error else "" for job in ended]
    figures = {"reasons": reasons, "said": said, "charged_units": [job.charged_units for job in ended], **later}
    passed = reasons == ["out-of-memory"] * 2 and "did not fit" in said[0] and "cannot fit" in said[1]
    return figures | {"passed": passed and ended[1].charged_units == 0 and later["job"] == "succeeded"}


def _wide(components: int) -> dict[str, Any]:
    """A job whose sums are large although its data set is small."""
    method = {"name": "mixture", "subspace_dimensions": 512, "components": components}
    return {"method": method, "epsilon": 10.0, "synthetic_images": 64, "evaluation": {"enabled": False}}


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
    """One worker is ten minutes ahead and another as much behind; in the middle of their jobs the clocks change places.

    Raises:
        FileNotFoundError: The Debian package faketime is not installed.
    """
    library = find_faketime()
    clocks = [folder / name for name in ("ahead", "behind")]
    with served(folder) as stack:
        stack.kill_worker(stack.workers[0])
        for clock, offset in zip(clocks, _OFFSETS, strict=True):
            clock.write_text(offset)
            variables = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(clock), **_CLOCK_OF_A_WORKER}
            stack.workers.append(stack.start("-m", *stack.worker_command(), **variables))
        ordered = [stack.order(LONG) for _ in range(2)]
        for job in ordered:
            stack.wait_for_steps(job, 10)
        for clock, offset in zip(clocks, reversed(_OFFSETS), strict=True):
            _replace(clock, offset)
        books = [read_books(stack, job) for job in ordered]
        moved = sorted(_minutes_of_charges(stack, job) for job in ordered)
    figures = {"charges_moved_minutes": moved} | {
        name: [one[name] for one in books] for name in ("job", "leases", "charged_again")
    }
    passed = figures["job"] == ["succeeded"] * 2 and figures["leases"] == [1, 1] and moved[0] < -15 < 15 < moved[1]
    return figures | {"passed": passed and figures["charged_again"] == [0, 0]}


def _replace(path: Path, text: str) -> None:
    """At once: a clock that is read meanwhile is the old or the new one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def _minutes_of_charges(stack: CeleryStack, job: Job) -> int:
    """From the first to the last, by the clock of the worker, which dates them."""
    first, *_, last = (entry.at for entry in stack.entries(job) if entry.kind == EntryKind.CHARGE)
    return round((last - first).total_seconds() / 60)


FAULTS: dict[str, Callable[[Path], Figures]] = {
    "frozen database": frozen_database,
    "frozen broker": frozen_broker,
    "full disk": full_disk,
    "too little memory": too_little_memory,
    "wrong clocks": wrong_clocks,
    "job that kills its processes": job_that_kills_its_processes,
    "upgrade": upgrade,
    "rolling upgrade": rolling_upgrade,
    "restored backup": restored_backup,
    "failover": failover,
    "large upload": large_upload,
    "locked table": locked_table,
    "behind PgBouncer": behind_pgbouncer,
    "silent receiver": silent_receiver,
    "many records": many_records,
    "announced uploads": announced_uploads,
    "exceeded quotas": exceeded_quotas,
    "wrong keys": wrong_keys,
    "unfinished heads": unfinished_heads,
    "revoked key": revoked_key,
    "one stop": one_stop,
    "dead workers": dead_workers,
    "differing clock": differing_clock,
    "full broker": full_broker,
    "wrong authority": wrong_authority,
    "interrupted removal": interrupted_removal,
    "load": load,
}
