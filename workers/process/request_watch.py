"""The thread that makes a request to pause or cancel take effect although the job does not look."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Final

import structlog

from datalens_service.errors import StaleLease, StoreUnavailable
from datalens_service.settings import Settings
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger import aggregates
from workers.job.packaging import PHASE, REPORTING
from workers.job.private_folder import PrivateFolder
from workers.process.job_process import Exit

log = structlog.get_logger()

GRACE_SECONDS: Final = 6.0
"""Time that a job has to hear a request between two steps; whoever asks waits for less than ten seconds."""

TRAINING: Final = "training"
_LOOK_SECONDS: Final = 1.0


class RequestWatch:
    """Ends the process of a job that did not hear a request to pause or cancel within a grace period.

    A step can take minutes: a classifier, a network of features, a large archive. A process may die anywhere without
    harm, as a killed one does: what was charged is on the books, and what was drawn is stored. A step between its
    charge and its stored sum is waited for. The files of a job that is cancelled once it was trained are paid for, so
    packing and reporting are never cut short by a cancellation.

    Args:
        database: Where the job is.
        settings: Where its private state is.
        lease: Of the job.
        grace: Seconds from seeing the request.
    """

    def __init__(self, database: Database, settings: Settings, lease: Lease, grace: float = GRACE_SECONDS) -> None:
        self._database = database
        self._settings = settings
        self._lease = lease
        self._grace = grace
        self._seen: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="requests", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                self._look()
            except StoreUnavailable:
                log.warning("requests not read, database unavailable", job_id=self._lease.job_id)
            except StaleLease:
                # The job has ended meanwhile, or the heartbeat ends the process.
                return

    def _look(self) -> None:
        job = jobs.get(self._database, self._lease.job_id)
        if not (job.pause_requested or _may_cancel(job)):
            self._seen = None
            return
        self._seen = time.monotonic() if self._seen is None else self._seen
        if time.monotonic() - self._seen >= self._grace and not self._draws(job):
            self._end(job)

    def _draws(self, job: Job) -> bool:
        """Whether a step was charged whose noisy sum is not stored yet: dying now would waste its budget."""
        with self._database.session() as session:
            pending = aggregates.is_draw_pending(session, self._lease.job_id, self._lease.token)
        return pending and job.progress.phase == TRAINING

    def _end(self, job: Job) -> None:
        """Give the job back or end it, and die without unwinding: no statement of the job runs after its lease."""
        log.warning("request not heard between two steps, process ends", job_id=self._lease.job_id)
        if _may_cancel(job):
            PrivateFolder(self._settings.data_dir, self._lease).close()
            leases.finish(self._database, self._lease, JobState.CANCELLED)
            PrivateFolder(self._settings.data_dir, self._lease).remove_job()
            os._exit(Exit.ENDED)
        released = leases.release(self._database, self._lease)
        os._exit(Exit.PAUSED if released.state == JobState.PAUSED else Exit.GIVEN_BACK)


def _may_cancel(job: Job) -> bool:
    """Whether it is cancelled and has no files in the making; between training and packing it has."""
    phase, value, maximum = job.progress.phase, job.progress.value, job.progress.maximum
    making_files = phase in (PHASE, REPORTING) or (phase == TRAINING and value == maximum)
    return job.cancel_requested and not making_files
