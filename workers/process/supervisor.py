"""The local supervisor, without a broker: the database is the queue.

`python -m datalens_service.workers.process.supervisor [--parent PID]`

Several may run on one database: claims decide who gets a job. A supervisor that is killed leaves its job
processes running; they hold their leases themselves, and the next supervisor counts them.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence

import structlog

from datalens_service.adapters.startup import start, warn_of_unknown_variables
from datalens_service.base import logs
from datalens_service.base.errors import DatalensError
from datalens_service.base.settings import Settings
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.workers.process.job_loop import JobLoop

log = structlog.get_logger()

_TURN_SECONDS = 0.5


class Supervisor(JobLoop):
    """Keeps up to `settings.max_running_jobs` jobs running, those of other supervisors included.

    Args:
        parent: The process that started this one; when it is gone, this one stops. None does without.
    """

    def __init__(
        self, database: Database, settings: Settings, stopping: threading.Event, parent: int | None = None
    ) -> None:
        slots = settings.max_running_jobs
        super().__init__(database, settings, stopping, slots=slots, turn_seconds=_TURN_SECONDS)
        self._parent = parent

    def turned(self) -> None:
        """Stop with the parent."""
        if self._parent is not None and os.getppid() != self._parent:
            log.warning("parent process is gone, supervisor stops", parent=self._parent)
            self._stopping.set()

    def free_slots(self) -> int:
        """Jobs of other supervisors take slots, too, and so do processes that outlived theirs."""
        running = leases.list_running(self._database)
        return super().free_slots() - sum(job_id not in self._attended for job_id in running)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a supervisor until SIGTERM, SIGINT or the end of its parent; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m datalens_service.workers.process.supervisor", description="Runs queued jobs."
    )
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this process, the starter, is gone")
    parent: int | None = parser.parse_args(arguments).parent
    settings = Settings()
    logs.configure(settings.log_level)
    warn_of_unknown_variables()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        database = start(settings)
    except DatalensError as error:
        log.error("supervisor cannot start", problem=error.slug, detail=error.detail)
        return 1
    log.info("supervisor started", max_running_jobs=settings.max_running_jobs, database=database.dialect)
    Supervisor(database, settings, stopping, parent).run()
    database.dispose()
    log.info("supervisor stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
