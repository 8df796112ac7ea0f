"""The thread beside a running job, and what the job tells and is told between two steps.

every second              requests to pause or cancel are heard: the job ends its work before its next step
                          one that no step obeyed for seconds ends the process
every ten seconds         progress is published, whenever the steps may end
three times per lease     the lease is renewed; the process ends with a lease that was lost
"""

import os
import threading
import time
from typing import Final, Self

import structlog
from sqlalchemy.orm import Session

from datalens_service.base.errors import JobStopped, StaleLease, StoreUnavailable
from datalens_service.base.progress import Phase
from datalens_service.jobs.failures import Exit
from datalens_service.jobs.private_folder import PrivateFolder
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease, Requests
from datalens_service.store.ledger import aggregates
from datalens_service.store.schema.tables import JobRow
from datalens_service.training import Observer

log = structlog.get_logger()

GRACE_SECONDS: Final = 6.0
"""Time that a job has to obey a request between two steps; whoever asks waits for less than ten seconds."""
PROGRESS_SECONDS: Final = 10.0
"""Progress within a phase is published no more often."""

_LOOK_SECONDS: Final = 1.0
_PAID: Final = (Phase.FITTING, Phase.DRAWING, Phase.PACKAGING, Phase.REPORTING)
"""In these, what was paid for is finished, whoever asks the job to stop."""


class ShutdownRequested(Exception):
    """The worker was asked to end; the job goes back to the queue and loses nothing."""


class PauseRequested(ShutdownRequested):
    """Raised when somebody has asked the job to pause; given back, it waits until it is resumed."""


class JobWatch:
    """Keeps the lease of a job, publishes its progress and hears requests while its block runs; its `Observer`.

    A phase is told when it begins and ends, as a job is. In between, progress is published by a clock: whoever looks at
    the job all the time cannot time a step on private records more finely.

    A worker that lost its job must not go on, wherever it is just now: the process ends at once, without unwinding, so
    that nothing of it is written or released. The fencing token would refuse it anyway.

    A step can take minutes: a classifier, a network of features, a large archive. Where no step obeys a request, the
    process ends, too. It may die anywhere without harm, as a killed one does: what was charged is on the books, and
    what was drawn is stored. A step between its charge and its stored sum is waited for, unless the job is cancelled: a
    job that goes on later would be charged for it again. The files of a job that is cancelled once it was trained are
    paid for, so packing and reporting are never cut short by a cancellation.

    Args:
        private: Its private files under this lease.
        also: Told of every step as well, for example a progress bar.
    """

    def __init__(self, database: Database, private: PrivateFolder, lease: Lease, also: Observer | None = None) -> None:
        self._database = database
        self._private = private
        self._lease = lease
        self._also = also
        self._reached: tuple[Phase, int, int] | None = None
        self._published: tuple[Phase, int, int] | None = None
        self._requests = Requests(cancel=False, pause=False)
        self._unheard_since: float | None = None
        self._next_renewal = time.monotonic() + lease.seconds / leases.RENEWALS
        self._next_publication = time.monotonic() + PROGRESS_SECONDS
        self._publishing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def __call__(self, phase: Phase, value: int, maximum: int) -> None:
        """Observe one step.

        Raises:
            JobStopped: Somebody asked the job to stop.
            PauseRequested: Somebody asked the job to pause.
        """
        if self._also is not None:
            self._also(phase, value, maximum)
        changes_phase = self._reached is None or phase != self._reached[0] or value == maximum
        self._reached = (phase, value, maximum)
        requests = self._publish() if changes_phase else self._requests
        if requests.cancel:
            raise JobStopped("The job was stopped on request; charges stay.")
        if requests.pause:
            raise PauseRequested

    def _watch(self) -> None:
        while not self._ended.wait(min(_LOOK_SECONDS, self._lease.seconds / leases.RENEWALS)):
            try:
                self._look()
            except StoreUnavailable:
                # Nobody else can claim the job either; the next look tries again.
                log.warning("job not watched, database unavailable", job_id=self._lease.job_id)

    def _look(self) -> None:
        now = time.monotonic()
        try:
            if now >= self._next_renewal:
                self._lease = leases.renew(self._database, self._lease)
                self._next_renewal = now + self._lease.seconds / leases.RENEWALS
            if now >= self._next_publication:
                self._publish()
                self._next_publication = now + PROGRESS_SECONDS
            self._hear()
            self._enforce(now)
        except StaleLease:
            if leases.was_lost(self._database, self._lease):
                self._die()
            self._ended.set()

    def _publish(self) -> Requests:
        with self._publishing:
            reached = self._reached
            if reached is not None and reached != self._published:
                self._requests = leases.progress(self._database, self._lease, *reached)
                self._published = reached
            return self._requests

    def _hear(self) -> None:
        self._requests = leases.read_requests(self._database, self._lease.job_id)

    def _enforce(self, now: float) -> None:
        """End the process once a request that may end it has stood for the grace period."""
        if not _may_end(self._requests, *(self._reached or (None, 0, 0))):
            self._unheard_since = None
            return
        self._unheard_since = now if self._unheard_since is None else self._unheard_since
        if now - self._unheard_since >= GRACE_SECONDS:
            self._end()

    def _end(self) -> None:
        """End the job, or give it back unless a step is drawn, and die without unwinding.

        Looking and ending are one transaction under the lock that a charge takes as well. The job can therefore not
        charge a step in between that nobody would draw, and after it every statement of the job is refused.
        """
        with leases.locked(self._database, self._lease) as (session, row):
            requests, reached = Requests.from_row(row), (row.phase, row.progress_value, row.progress_maximum)
            cancels = _may_cancel(requests, *reached)
            if not cancels and (not requests.pause or self._draws(session, row)):
                return
            log.warning("request not noticed between two steps, process ends", job_id=self._lease.job_id)
            code = self._cancel(session, row) if cancels else _give_back(session, row)
        if code == Exit.ENDED:
            self._private.remove_job()
        os._exit(code)

    def _draws(self, session: Session, row: JobRow) -> bool:
        """Return True if a step was charged whose noisy sum is not stored yet: dying now would waste its budget."""
        pending = aggregates.is_draw_pending(session, self._lease.job_id, self._lease.token)
        return pending and row.phase == Phase.TRAINING

    def _cancel(self, session: Session, row: JobRow) -> Exit:
        # Before the end, so that an ended job has no private files.
        self._private.close()
        jobs.end(session, row, JobState.CANCELLED, None)
        return Exit.ENDED

    def _die(self) -> None:
        if self._ended.is_set():
            return
        log.warning("lease lost, process ends", job_id=self._lease.job_id, lease_token=self._lease.token)
        os._exit(Exit.FENCED)


def _give_back(session: Session, row: JobRow) -> Exit:
    leases.give_back_locked(session, row)
    return Exit.PAUSED if row.state == JobState.PAUSED else Exit.GIVEN_BACK


def _may_end(requests: Requests, phase: str | None, value: int, maximum: int) -> bool:
    return requests.pause or _may_cancel(requests, phase, value, maximum)


def _may_cancel(requests: Requests, phase: str | None, value: int, maximum: int) -> bool:
    """Return True if it is cancelled and has no files in the making; between training and packing it has."""
    making_files = phase in _PAID or (phase == Phase.TRAINING and value == maximum)
    return requests.cancel and not making_files
