"""What a running job tells and is told between two steps: progress out, cancellation in."""

from __future__ import annotations

import time

from datalens_service.errors import JobStopped
from datalens_service.run import Observer
from datalens_service.store import jobs, leases
from datalens_service.store.database import Database
from datalens_service.store.leases import Lease

_SECONDS = 1.0


class ShutdownRequested(Exception):
    """The worker was asked to end; the job goes back to the queue and loses nothing."""


class PauseRequested(ShutdownRequested):
    """Somebody asked the job to pause; given back, it waits until it is resumed."""


class JobObserver:
    """Writes progress and reads what is wished of the job, at most once a second and at every change of phase.

    Args:
        database: Where the job is.
        lease: Fences what is written.
        also: Told of every step as well, for example a progress bar.
    """

    def __init__(self, database: Database, lease: Lease, also: Observer | None = None) -> None:
        self._database = database
        self._lease = lease
        self._also = also
        self._phase = ""
        self._next = 0.0

    def __call__(self, phase: str, value: int, maximum: int) -> None:
        """Observe one step.

        Raises:
            JobStopped: Somebody asked the job to stop.
            PauseRequested: Somebody asked the job to pause.
            StaleLease: Another worker holds the job.
        """
        if self._also is not None:
            self._also(phase, value, maximum)
        if phase != self._phase or value == maximum or time.monotonic() >= self._next:
            self._report(phase, value, maximum)

    def _report(self, phase: str, value: int, maximum: int) -> None:
        leases.progress(self._database, self._lease, phase, value, maximum)
        self._phase = phase
        self._next = time.monotonic() + _SECONDS
        job = jobs.get(self._database, self._lease.job_id)
        if job.cancel_requested:
            raise JobStopped("The job was stopped on request; what was charged stays charged.")
        if job.pause_requested:
            raise PauseRequested
