"""Supervises one job process and gives its job back to the queue after a crash; shared by both supervisors.

    claimed ──▶ start a process ──▶ it ends by itself, or pauses ───▶ done
                                    it was killed, or crashed ──┐
                                    it lost its lease: kill it ─┴──▶ its job is the queue's again
                                    (stopped, hung, cut off from the database)

How often a job is started in a row without a stored step is counted in its row when it is claimed, by
`leases.claim_next`; `leases.lose` ends a job that was started too often.
"""

import threading
import time

import structlog

from datalens_service.base.errors import StoreUnavailable, WorkerUnavailable
from datalens_service.jobs.failures import Exit
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.patience import impatient
from datalens_service.workers.process.fork_server import ForkServer
from datalens_service.workers.process.job_process import JobProcess

log = structlog.get_logger()

GRACE_SECONDS = 45.0
"""Seconds in which a process has to give its job back; one step of training has to fit."""

_POLL_SECONDS = 0.2
_CHECK_SECONDS = 2.0
_PATIENCE_SECONDS = 5.0


@impatient()
def supervise(database: Database, lease: Lease, stopping: threading.Event, server: ForkServer) -> bool:
    """Run one process of a job, and give its lease up when it was lost.

    Args:
        stopping: Set to have the job given back to the queue.

    Returns:
        True if the worker may start the next one at once: nothing is wrong with itself, its disk or its database.
    """
    try:
        process = JobProcess(lease, server)
    except WorkerUnavailable as error:
        log.error("job process cannot start", job_id=lease.job_id, detail=error.detail)
        leases.give_back(database, lease)
        return False
    log.info("job process started", job_id=process.job_id, pid=process.pid)
    code = _Watch(database, process, stopping).exit_code()
    if code in (Exit.ENDED, Exit.PAUSED, Exit.FENCED):
        return True
    log.warning("job process ended early", job_id=process.job_id, pid=process.pid, exit_code=code)
    # The process itself reports what keeps it from beginning here.
    killed = code is not None and code < 0 and not stopping.is_set()
    try:
        process.give_up(database, counts=killed)
    except StoreUnavailable:
        # Then the lease runs out in its own time.
        log.warning("lease not ended, database unavailable", job_id=process.job_id)
    return killed or (code == Exit.CRASHED and process.adopted)


class _Watch:
    """Waits for the end of one process, and sees to it that it comes."""

    def __init__(self, database: Database, process: JobProcess, stopping: threading.Event) -> None:
        self._database = database
        self._process = process
        self._stopping = stopping
        self._next_check = time.monotonic() + _CHECK_SECONDS
        self._superseded_since: float | None = None

    def exit_code(self) -> int | None:
        """Return the exit code of the process, once it has ended."""
        while (code := self._process.wait(_POLL_SECONDS)) is None:
            if self._stopping.is_set():
                return self._ended()
            self._process.hold(self._database)
            if self._useless():
                log.warning("job process lost its lease, killed", job_id=self._process.job_id, pid=self._process.pid)
                return self._process.kill()
        return code

    def _ended(self) -> int | None:
        self._process.terminate()
        code = self._process.wait(GRACE_SECONDS)
        return self._process.kill() if code is None else code

    def _useless(self) -> bool:
        """Return True if the job has not been its own for so long that it cannot just be on its way out."""
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK_SECONDS
            self._superseded_since = (self._superseded_since or now) if self._superseded() else None
        return self._superseded_since is not None and now - self._superseded_since >= _PATIENCE_SECONDS

    def _superseded(self) -> bool:
        try:
            return self._process.superseded(jobs.get(self._database, self._process.job_id))
        except StoreUnavailable:
            return False
