"""The thread that makes a request to pause or cancel take effect although the job does not look."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Final

import structlog
from sqlalchemy.orm import Session

from datalens_service.errors import StaleLease, StoreUnavailable
from datalens_service.jobs.exit_codes import Exit
from datalens_service.jobs.private_folder import PrivateFolder
from datalens_service.phases import Phase
from datalens_service.settings import Settings
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger import aggregates
from datalens_service.store.tables import JobRow

log = structlog.get_logger()

GRACE_SECONDS: Final = 6.0
"""Time that a job has to hear a request between two steps; whoever asks waits for less than ten seconds."""

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
        if not _may_end(jobs.get(self._database, self._lease.job_id)):
            self._seen = None
            return
        self._seen = time.monotonic() if self._seen is None else self._seen
        if time.monotonic() - self._seen >= self._grace:
            self._end()

    def _end(self) -> None:
        """Unless a step is drawn: give the job back or end it, and die without unwinding.

        Looking and ending are one transaction under the lock that a charge takes as well. The job can therefore not
        charge a step in between that nobody would draw, and after it every statement of the job is refused.
        """
        with leases.locked(self._database, self._lease) as (session, row):
            job = Job.of(row)
            if not _may_end(job) or self._draws(session, job):
                return
            log.warning("request not heard between two steps, process ends", job_id=self._lease.job_id)
            code = self._cancel(session, row) if _may_cancel(job) else self._give_back(session, row)
        if code == Exit.ENDED:
            PrivateFolder(self._settings.data_dir, self._lease).remove_job()
        os._exit(code)

    def _draws(self, session: Session, job: Job) -> bool:
        """Whether a step was charged whose noisy sum is not stored yet: dying now would waste its budget."""
        pending = aggregates.is_draw_pending(session, self._lease.job_id, self._lease.token)
        return pending and job.progress.phase == Phase.TRAINING

    def _cancel(self, session: Session, row: JobRow) -> Exit:
        # Before the end, so that an ended job has no private files.
        PrivateFolder(self._settings.data_dir, self._lease).close()
        jobs.end(session, row, JobState.CANCELLED, None)
        return Exit.ENDED

    def _give_back(self, session: Session, row: JobRow) -> Exit:
        leases.give_back(session, row)
        return Exit.PAUSED if row.state == JobState.PAUSED else Exit.GIVEN_BACK


def _may_end(job: Job) -> bool:
    return job.pause_requested or _may_cancel(job)


def _may_cancel(job: Job) -> bool:
    """Whether it is cancelled and has no files in the making; between training and packing it has."""
    phase, value, maximum = job.progress.phase, job.progress.value, job.progress.maximum
    making_files = phase in (Phase.PACKAGING, Phase.REPORTING) or (phase == Phase.TRAINING and value == maximum)
    return job.cancel_requested and not making_files
