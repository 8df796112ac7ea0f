"""What a running job tells and is told between two steps: progress out, cancellation in."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

import structlog

from datalens_service.errors import JobStopped, StaleLease, StoreUnavailable
from datalens_service.phases import Phase
from datalens_service.run import Observer
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.leases import Lease

PROGRESS_SECONDS: Final = 10.0
"""Progress within a phase is published no more often."""

_LOOK_SECONDS: Final = 1.0

log = structlog.get_logger()


class ShutdownRequested(Exception):
    """The worker was asked to end; the job goes back to the queue and loses nothing."""


class PauseRequested(ShutdownRequested):
    """Somebody asked the job to pause; given back, it waits until it is resumed."""


class JobObserver:
    """Publishes progress on a clock of its own, and reads what is wished of the job between two steps.

    A phase is told when it begins and ends, as a job is. In between, progress is published every ten seconds whenever
    the steps may end: whoever looks at the job all the time cannot time a step on private records more finely.

    Args:
        database: Where the job is.
        lease: Fences what is written.
        also: Told of every step as well, for example a progress bar.
        seconds: Between two times of publishing.
    """

    def __init__(
        self, database: Database, lease: Lease, also: Observer | None = None, seconds: float = PROGRESS_SECONDS
    ) -> None:
        self._database = database
        self._lease = lease
        self._also = also
        self._seconds = seconds
        self._reached: tuple[Phase, int, int] | None = None
        self._published: tuple[Phase, int, int] | None = None
        self._next_look = 0.0
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_publishing, name="progress", daemon=True)

    def __enter__(self) -> JobObserver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def __call__(self, phase: Phase, value: int, maximum: int) -> None:
        """Observe one step.

        Raises:
            JobStopped: Somebody asked the job to stop.
            PauseRequested: Somebody asked the job to pause.
            StaleLease: Another worker holds the job.
        """
        if self._also is not None:
            self._also(phase, value, maximum)
        changes_phase = self._reached is None or phase != self._reached[0] or value == maximum
        self._reached = (phase, value, maximum)
        if changes_phase:
            self._publish()
        if changes_phase or time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._check_requests()

    def _check_requests(self) -> None:
        job = jobs.get(self._database, self._lease.job_id)
        if job.cancel_requested:
            raise JobStopped("The job was stopped on request; what was charged stays charged.")
        if job.pause_requested:
            raise PauseRequested

    def _publish(self) -> None:
        with self._writing:
            reached = self._reached
            if reached is not None and reached != self._published:
                leases.progress(self._database, self._lease, *reached)
                self._published = reached

    def _keep_publishing(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self._publish()
            except StaleLease:
                # The next charge is refused, and the heartbeat ends the process.
                return
            except StoreUnavailable:
                log.warning("progress not published, database unavailable", job_id=self._lease.job_id)
