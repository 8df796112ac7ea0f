"""The loop that gives jobs to processes: the local supervisor's and a Celery worker's.

    every turn    jobs of lost workers wait again
                  a free slot, once a process can be forked, takes the job whose turn it is, and has it forked
                  the next turn comes after a while, when a process has ended, or when somebody wakes the loop

The database is the queue, and `leases.claim_next` says whose turn it is. What wakes the loop only shortens the wait: a
job is never tied to a message.
"""

import os
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import structlog

from datalens_service.adapters.startup import check_disks
from datalens_service.base import logs
from datalens_service.base.errors import GpuMemoryTaken, StoreUnavailable, WorkerUnavailable
from datalens_service.base.gpu import explain_old_driver
from datalens_service.base.settings import Settings
from datalens_service.jobs.memory import check_gpu_memory
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import attendance, leases
from datalens_service.store.jobs.attendance import REPORT_SECONDS, Worker
from datalens_service.store.patience import impatient
from datalens_service.workers.process.fork_server import ForkServer, explain_missing_package
from datalens_service.workers.process.recover_jobs import Recovery
from datalens_service.workers.process.supervise_job import supervise

log = structlog.get_logger()

_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0


class JobLoop:
    """Keeps up to `slots` jobs running until it is stopped.

    Args:
        queue: Only jobs of this queue, and of none; None is all.
        turn_seconds: Longest wait between two turns.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        stopping: threading.Event,
        *,
        slots: int,
        queue: str | None = None,
        turn_seconds: float,
    ) -> None:
        self._database = database
        self._settings = settings
        self._stopping = stopping
        self._slots = slots
        self._queue = queue
        self._turn_seconds = turn_seconds
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._attended: dict[str, Future[bool]] = {}
        self._server = ForkServer()
        self._recovery = Recovery(database, settings)
        self._has_data = False
        self._woken = threading.Event()
        self._pause = _SHORTEST_PAUSE
        self._paused_until = 0.0
        self._complaint = "", 0.0
        self._old_driver = None if settings.device == "cpu" else explain_old_driver()
        self._trouble = explain_missing_package() or self._old_driver
        self._told: tuple[Worker, float] | None = None

    def wake(self) -> None:
        """Have the next turn now."""
        self._woken.set()

    def run(self) -> None:
        """Take turns until told to stop; then wait for the processes."""
        supervisors = ThreadPoolExecutor(self._slots, thread_name_prefix="supervise")
        with impatient(), closing(self._server), supervisors as threads:
            while not self._stopping.is_set():
                self._tell()
                self._try_turn(threads)
                self.turned()
                self._woken.wait(self._turn_seconds)
                self._woken.clear()
            self._tell(ended=True)

    def turned(self) -> None:
        """Called after each turn, whether or not the database answered."""

    def free_slots(self) -> int:
        """Return how many more jobs may run now."""
        return self._slots - len(self._attended)

    def _tell(self, *, ended: bool = False) -> None:
        """Note in the database that this worker is alive: now and then, and at once what has changed."""
        gpu = False if self._settings.device == "cpu" else self._server.has_gpu
        worker = Worker(self._owner, self._queue, gpu, self._trouble, ended)
        if self._told is not None and self._told[0] == worker and time.monotonic() - self._told[1] < REPORT_SECONDS:
            return
        try:
            attendance.report(self._database, worker)
        except StoreUnavailable as error:
            self._complain(error.detail)
        except Exception as error:  # noqa: BLE001 (the jobs that run need this loop)
            log.error("worker cannot note that it is alive", **logs.outline(error))
        else:
            self._told = worker, time.monotonic()

    def _try_turn(self, threads: ThreadPoolExecutor) -> None:
        try:
            self._forget_ended()
            self._recovery.run()
            self._start_jobs(threads)
        except StoreUnavailable as error:
            self._complain(error.detail)
        except Exception as error:  # noqa: BLE001 (the jobs that run need this loop)
            log.error("no job is started, trying again", **logs.outline(error))

    def _complain(self, detail: str) -> None:
        """Log what keeps jobs from being started: when it begins, and now and then while it lasts."""
        said, moment = self._complaint
        if detail != said or time.monotonic() - moment >= _LONGEST_PAUSE:
            log.error("database, disk or GPU unavailable, no job is started", detail=detail)
            self._complaint = detail, time.monotonic()

    def _forget_ended(self) -> None:
        for job_id, future in list(self._attended.items()):
            if not future.done():
                continue
            del self._attended[job_id]
            if (error := future.exception()) is not None:
                log.error("job is no longer supervised", job_id=job_id, **logs.outline(error))
            self._note(ended_well=error is None and future.result())

    def _note(self, *, ended_well: bool) -> None:
        """Wait after a process that could not begin here, each time longer: no other would fare better."""
        if ended_well:
            self._pause = _SHORTEST_PAUSE
            return
        self._paused_until = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _can_start(self) -> bool:
        """Return True if a claimed job would begin now; without any data set, nothing is imported for jobs."""
        self._has_data = self._has_data or bool(datasets.list_datasets(self._database, limit=1).items)
        if not self._has_data or time.monotonic() < self._paused_until:
            return False
        try:
            if self._old_driver is not None:
                raise WorkerUnavailable(self._old_driver)
            ready = self._server.ready()
        except WorkerUnavailable as error:
            log.error("no job process can start", detail=error.detail)
            self._trouble = error.text
            self._note(ended_well=False)
            return False
        self._trouble = None if ready else self._trouble
        return ready

    def _check_disks(self) -> None:
        """Check the disks before a claim: where there is no room, others may take the job."""
        try:
            check_disks(self._settings)
        except StoreUnavailable as error:
            self._trouble = error.text
            self._note(ended_well=False)
            raise

    def _has_gpu_memory(self, job_id: str) -> bool:
        """Return True unless another program has the memory that the next job needs: it waits, and is not claimed."""
        if self._settings.device == "cpu" or not self._server.has_gpu:
            return True
        try:
            check_gpu_memory(self._database, job_id, self._settings.device, self._settings.ranks)
        except GpuMemoryTaken as error:
            self._trouble = error.text
            self._complain(error.text)
            self._note(ended_well=False)
            return False
        return True

    def _start_jobs(self, threads: ThreadPoolExecutor) -> None:
        if not self._can_start():
            return
        while self.free_slots() > 0 and (waiting := leases.next_queued(self._database, 1, self._queue)):
            self._check_disks()
            if not self._has_gpu_memory(waiting[0]):
                return
            seconds = self._settings.lease_seconds
            lease = leases.claim_next(self._database, self._owner, seconds, queue=self._queue)
            if lease is None:
                return
            future = threads.submit(supervise, self._database, lease, self._stopping, self._server)
            self._attended[lease.job_id] = future
            future.add_done_callback(lambda _: self.wake())
