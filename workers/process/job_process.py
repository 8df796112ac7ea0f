"""The process of one job, from outside: start it, watch it, end it, and give its lease up when it is dead."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

from datalens_service.errors import StaleLease, StoreUnavailable
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease

_TOKEN_BYTES = 32
_RENEWALS = 3
"""Per lease, as of the heartbeat of a job."""


WAITS_ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait spin by default; where other work runs beside a job, that makes it many times slower."""


def announce(lease: Lease) -> None:
    """Tell whoever started this process that it holds its lease itself from now on."""
    os.write(sys.stdout.fileno(), b"%d\n" % lease.token)


class JobProcess:
    """One `python -m workers.run_job --token TOKEN JOB_ID`, in a session of its own so that all of it can be killed.

    It runs under a lease that was claimed before it was started. Until it has adopted the lease, `hold` renews it.
    The process announces that on its standard output: a file, not a pipe, so that it outlives either side.
    """

    def __init__(self, lease: Lease) -> None:
        self.job_id = lease.job_id
        self._lease = lease
        self._next_renewal = time.monotonic() + lease.seconds / _RENEWALS
        self._announced = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this object)
        self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and module; the id is the database's)
            [sys.executable, "-P", "-m", "workers.run_job", "--token", str(lease.token), lease.job_id],
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
    def adopted(self) -> bool:
        """Whether it holds or held its lease itself."""
        # pread leaves the offset alone, which both processes share.
        return b"\n" in os.pread(self._announced.fileno(), _TOKEN_BYTES, 0)

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
        return job.lease_token != self._lease.token or job.state != JobState.RUNNING

    def hold(self, database: Database) -> None:
        """Renew the lease while the process still starts: imports may take longer than a lease."""
        if time.monotonic() < self._next_renewal or self.adopted:
            return
        self._next_renewal = time.monotonic() + self._lease.seconds / _RENEWALS
        with contextlib.suppress(StaleLease, StoreUnavailable):
            leases.renew(database, self._lease)

    def give_up(self, database: Database) -> None:
        """End the lease of this dead process now: it is known that nobody renews it.

        A process that died before it began has used no attempt: a worker that cannot start any fails no job.

        Raises:
            StoreUnavailable: The database does not answer; the lease runs out in its own time.
        """
        with contextlib.suppress(StaleLease):
            if self.adopted:
                leases.renew(database, replace(self._lease, seconds=-1))
            else:
                leases.release(database, self._lease)
