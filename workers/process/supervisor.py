"""The local supervisor: `python -m workers.process.supervisor [--parent PID]`. No broker, the database is the queue.

Several may run on one database: claims decide who gets a job. A supervisor that is killed leaves its job
processes running; they hold their leases themselves, and the next supervisor counts them.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from datalens_service import logs
from datalens_service.errors import DatalensError, StoreUnavailable
from datalens_service.services.startup import start
from datalens_service.settings import Settings
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from workers.process.recover_jobs import upkeep
from workers.process.supervise_job import attend

log = structlog.get_logger()

_POLL_SECONDS = 0.5
_MOST_RUNNING_JOBS = 200


class Supervisor:
    """Keeps up to `settings.max_running_jobs` jobs running.

    Args:
        database: The queue.
        settings: Number of jobs, folder of private files.
        stopping: Set to have all jobs given back to the queue and `run` return.
    """

    def __init__(self, database: Database, settings: Settings, stopping: threading.Event) -> None:
        self._database = database
        self._settings = settings
        self._stopping = stopping
        self._attended: dict[str, Future[None]] = {}

    def run(self, parent: int | None = None) -> None:
        """Start jobs until told to stop, or until the process `parent`, which started this one, is gone."""
        with ThreadPoolExecutor(self._settings.max_running_jobs, thread_name_prefix="attend") as threads:
            while not self._stopping.is_set():
                self._try_round(threads)
                self._stopping.wait(_POLL_SECONDS)
                if parent is not None and os.getppid() != parent:
                    log.warning("parent process is gone, supervisor stops", parent=parent)
                    self._stopping.set()

    def _try_round(self, threads: ThreadPoolExecutor) -> None:
        try:
            self._forget_ended()
            upkeep(self._database, self._settings)
            self._start_jobs(threads)
        except StoreUnavailable as error:
            log.error("database unavailable, no job is started", detail=error.detail)

    def _forget_ended(self) -> None:
        for job_id, future in list(self._attended.items()):
            if future.done():
                del self._attended[job_id]
                if (error := future.exception()) is not None:
                    log.error("job is not attended any more", job_id=job_id, **logs.outline(error))

    def _start_jobs(self, threads: ThreadPoolExecutor) -> None:
        free = self._settings.max_running_jobs - len(self._attended) - self._running_elsewhere()
        # Attended jobs can be in the queue too, between two processes.
        waiting = leases.next_queued(self._database, limit=len(self._attended) + max(free, 0))
        for job_id in [job_id for job_id in waiting if job_id not in self._attended][: max(free, 0)]:
            self._attended[job_id] = threads.submit(attend, self._database, job_id, self._stopping)

    def _running_elsewhere(self) -> int:
        """Jobs of other supervisors, and of processes that outlived theirs."""
        running = jobs.list_jobs(self._database, state=JobState.RUNNING, limit=_MOST_RUNNING_JOBS).items
        return sum(job.id not in self._attended for job in running)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a supervisor until SIGTERM, SIGINT or the end of its parent; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.process.supervisor", description="Runs queued jobs.")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this process, the starter, is gone")
    parent: int | None = parser.parse_args(arguments).parent
    settings = Settings()
    logs.configure(settings.log_level)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        database = start(settings)
    except DatalensError as error:
        log.error("supervisor cannot start", problem=error.slug, detail=error.detail)
        return 1
    log.info("supervisor started", max_running_jobs=settings.max_running_jobs, database=database.dialect)
    Supervisor(database, settings, stopping).run(parent)
    database.dispose()
    log.info("supervisor stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
