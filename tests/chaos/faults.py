"""What is killed, how it is started again, and how long the service takes until it works again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from datalens_service.base.errors import StoreUnavailable
from datalens_service.services.overview import overview
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.jobs.jobs import JobState
from deployments.stack import CeleryStack

RECOVERY_SECONDS = 60.0
"""The goal: this long after everything is started again, a job has gone on and the API answers."""

_DOUBLE = 0.2


@dataclass(frozen=True)
class Fault:
    """One kill, or two at once.

    Attributes:
        parts: What was killed.
        seconds: From the restart until the service worked again.
    """

    parts: tuple[str, ...]
    seconds: float


class Chaos:
    """Kills parts of a stack at random moments, each with SIGKILL, and starts them again."""

    def __init__(self, stack: CeleryStack, rng: random.Random) -> None:
        self._stack = stack
        self._rng = rng
        self._parts: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "api": (stack.kill_api, stack.start_api),
            "worker": (self._kill_worker, self._start_worker),
            "job process": (self._kill_job, lambda: None),
            "redis": (stack.redis.kill, stack.redis.serve),
            "postgresql": (stack.postgresql.kill, stack.postgresql.serve),
        }

    def strike(self) -> Fault:
        """Kill one part, or two; start them again after a moment; wait until the service works."""
        parts = self._rng.sample(sorted(self._parts), 2 if self._rng.random() < _DOUBLE else 1)
        # The database last: which process runs a job is read from it.
        parts.sort(key=lambda part: part == "postgresql")
        for part in parts:
            self._parts[part][0]()
        time.sleep(self._rng.uniform(0, 2))
        for part in parts[::-1]:
            self._parts[part][1]()
        started = time.monotonic()
        self._recover()
        return Fault(tuple(parts), time.monotonic() - started)

    def _recover(self) -> None:
        """Until the API is ready and, if any job is waiting or running, a release was made or a job ended."""
        self._stack.wait(self._stack.ready)
        before = self._stack.patiently(self._pulse)
        self._stack.wait(lambda: self._pulse() != before or self._idle())

    def _pulse(self) -> tuple[int, int]:
        found = overview(self._stack.database)
        return found.entries, found.jobs[JobState.SUCCEEDED]

    def _idle(self) -> bool:
        found = overview(self._stack.database).jobs
        return found[JobState.QUEUED] == found[JobState.RUNNING] == 0

    def _kill_worker(self) -> None:
        self._stack.kill_worker(self._rng.choice(self._stack.workers))

    def _start_worker(self) -> None:
        self._stack.start_worker()

    def _kill_job(self) -> None:
        try:
            running = jobs.list_jobs(self._stack.database, JobFilter(state=JobState.RUNNING)).items
        except StoreUnavailable:
            return
        if running:
            self._stack.kill_job_process(self._rng.choice(running))
