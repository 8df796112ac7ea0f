"""The process of one job, from outside: start it, watch it, end it, and give its lease up when it is dead."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from enum import IntEnum

from datalens_service.errors import StaleLease
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease

_TOKEN_BYTES = 32


class Exit(IntEnum):
    """How a job process ends on its own; a negative code is the signal that killed it."""

    ENDED = 0
    """The job has ended, or another worker holds it: nothing is left to do."""
    CRASHED = 1
    """An error outside the job, for example a broken installation."""
    PAUSED = 74
    """The job waits until somebody resumes it."""
    GIVEN_BACK = 75
    """The job is in the queue again: the process was asked to end, or the database was not available."""
    FENCED = 76
    """Another worker took the job over."""


WAITS_ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait spin by default; where other work runs beside a job, that makes it many times slower."""


def announce(lease: Lease) -> None:
    """Tell whoever started this process which lease it holds."""
    os.write(sys.stdout.fileno(), b"%d\n" % lease.token)


class JobProcess:
    """One `python -m workers.run_job JOB_ID`, in a session of its own so that all of it can be killed.

    Its standard output holds the token it announced: a file, not a pipe, so that it outlives either side.
    """

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self._announced = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this object)
        self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and module; the id was checked)
            [sys.executable, "-P", "-m", "workers.run_job", job_id],
            stdin=subprocess.DEVNULL,
            stdout=self._announced,
            start_new_session=True,
            env=WAITS_ASLEEP | os.environ,
        )

    @property
    def pid(self) -> int:
        """Process id, and id of its group."""
        return self._process.pid

    @property
    def token(self) -> int | None:
        """Token of the lease it holds or held; None before it claimed the job."""
        # pread leaves the offset alone, which both processes share.
        line, complete, _ = os.pread(self._announced.fileno(), _TOKEN_BYTES, 0).partition(b"\n")
        return int(line) if complete else None

    def wait(self, seconds: float) -> int | None:
        """Exit code, or None if it still runs after `seconds`."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Ask it to give the job back."""
        self._process.terminate()

    def kill(self) -> int:
        """End it and everything it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self._process.wait()

    def superseded(self, job: Job) -> bool:
        """Whether it works on a job that is no longer its own."""
        return self.token is not None and (job.lease_token != self.token or job.state != JobState.RUNNING)

    def abandon(self, database: Database) -> None:
        """Let the lease of this dead process run out now: it is known that nobody renews it."""
        if self.token is None:
            return
        lease = Lease(self.job_id, self.token, owner="", seconds=-1, until=datetime.now(UTC))
        with contextlib.suppress(StaleLease):
            leases.renew(database, lease)
