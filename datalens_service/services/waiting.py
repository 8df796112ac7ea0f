"""Explains why a job does not go on: what keeps workers from taking it, or that its worker is silent.

Counts of others' jobs are told to nobody.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from datalens_service.adapters.health import DISK
from datalens_service.base.errors import WorkerUnavailable
from datalens_service.spec import Device
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_clock
from datalens_service.store.jobs.attendance import Attendance, Worker, list_waiting_queues, read_attendance
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.schema.tables import JOB_FORMAT

_SOON: Final = timedelta(minutes=1)
"""Within which a free worker takes a job, and the first worker of a new service begins."""
_GIVEN_BACK: Final = (
    "Its last worker gave it back or was lost, perhaps because it ran out of memory; it continues as soon as "
    "a worker is free."
)
_BUSY: Final = "Workers are busy with other jobs; this one starts as soon as one of them has ended."
_NOBODY: Final = "A worker is alive but has not taken it for a minute; the worker's log tells the operator why."
_ASK: Final = "the operator has to start one."
_NEVER: Final = f"No worker has been at work yet: {_ASK}"
_NEWER: Final = "A newer version of the service took it in, so it waits for a worker of that version."
_NO_GPU: Final = (
    "It waits for a worker with a GPU, and no worker at work has one; a worker without a GPU would end it, uncharged."
)


def explain_waiting(database: Database, faults: Mapping[str, str], found: Sequence[Job]) -> dict[str, str]:
    """Map the id of each job that does not go on to the reason, in its reader's voice.

    Args:
        faults: Faults of the surroundings of the service, by part.
    """
    states = {job.state for job in found}
    if JobState.QUEUED not in states and not (JobState.RUNNING in states and _any_silent(database, found)):
        return {}
    attendance = read_attendance(database)
    reasons = {job.id: explain_job(job, faults, attendance) for job in found}
    return {job_id: reason for job_id, reason in reasons.items() if reason is not None}


def explain_job(job: Job, faults: Mapping[str, str], attendance: Attendance) -> str | None:
    """The reason of one job; None of one that goes on, has ended, or that a worker will take at once."""
    if job.state is JobState.RUNNING:
        if job.lease_until is None or not job.is_silent(attendance.now):
            return None
        lost = f"Its worker is silent; its lease ended at {_say(job.lease_until)}."
        rest = _explain_absence(attendance, job.queue) if job.queue not in attendance.busy else None
        return f"{lost} {rest or 'Another worker will continue it.'}"
    return _explain_queue(job, faults, attendance) if job.state is JobState.QUEUED else None


def check_workers(database: Database, started: float) -> None:
    """Check that a worker is there for every job that waits, and for the next one.

    Args:
        started: Start of the service, on the monotonic clock; workers have a minute to begin after it.

    Raises:
        WorkerUnavailable: None is alive, or none of those alive could take a job.
    """
    if time.monotonic() - started < _SOON.total_seconds():
        return
    attendance = read_attendance(database)
    for queue in ({None} | list_waiting_queues(database)) - attendance.busy:
        reason = None if queue is None and attendance.busy else _explain_absence(attendance, queue)
        if reason is not None:
            raise WorkerUnavailable(f"{reason} Jobs of the queue {queue} wait." if queue else reason)


def _any_silent(database: Database, found: Sequence[Job]) -> bool:
    now = read_clock(database)
    return any(job.is_silent(now) for job in found)


def _explain_queue(job: Job, faults: Mapping[str, str], attendance: Attendance) -> str | None:
    if DISK in faults:
        return faults[DISK]
    if job.format > JOB_FORMAT:
        return _NEWER
    if job.queue in attendance.busy:
        return _BUSY
    soon = attendance.now - job.created_at < _SOON
    absence = _explain_absence(attendance, job.queue, "worker with a GPU" if _wants_gpu(job) else "worker")
    if absence is not None and not (soon and not attendance.workers):
        return absence
    if _wants_gpu(job) and (alive := attendance.alive(job.queue)) and not any(map(_may_have_gpu, alive)):
        return _NO_GPU
    if job.attempts:
        return _GIVEN_BACK
    return None if soon else _NOBODY


def _explain_absence(attendance: Attendance, queue: str | None, what: str = "worker") -> str | None:
    """Say why no worker of a queue can take a job; None if one can."""
    alive = attendance.alive(queue)
    if alive:
        troubles = [worker.trouble for worker in alive]
        return next((f"No worker can start a job: {one}" for one in troubles if one), None) if all(troubles) else None
    last = attendance.last_seen(queue)
    if last is None:
        return _NEVER.replace("worker", what, 1)
    return f"No {what} has been alive since {_say(last)}: {_ASK}"


def _wants_gpu(job: Job) -> bool:
    return job.spec.get("device") == Device.GPU


def _may_have_gpu(worker: Worker) -> bool:
    return worker.gpu is not False


def _say(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
