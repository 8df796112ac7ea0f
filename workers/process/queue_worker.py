"""What a Celery worker does beside receiving messages: it runs jobs.

A message only wakes it. Jobs whose message was lost, or that were interrupted, are found at its next turn.
"""

import threading

from datalens_service.settings import Settings
from datalens_service.store.database import Database
from workers.process.health import HealthFile
from workers.process.job_loop import JobLoop
from workers.process.supervise_job import GRACE_SECONDS

_TURN_SECONDS = 2.0


class QueueWorker(JobLoop):
    """Runs one job at a time from the queue of the settings, in a thread of the worker."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._asked_to_stop = threading.Event()
        super().__init__(
            database, settings, self._asked_to_stop, slots=1, queue=settings.queue, turn_seconds=_TURN_SECONDS
        )
        self._health = HealthFile()
        self._thread = threading.Thread(target=self.run, name="jobs", daemon=True)

    def start(self) -> None:
        """Begin to take jobs; the broker need not be there yet."""
        self._thread.start()

    def turned(self) -> None:
        """Say that the loop turns."""
        self._health.touch()

    def stop(self) -> None:
        """Have the running job given back to the queue; returns at once."""
        self._asked_to_stop.set()
        self.wake()

    def join(self) -> None:
        """Wait until the job is given back."""
        self._thread.join(GRACE_SECONDS + _TURN_SECONDS)
