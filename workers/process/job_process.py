"""The process of one job, from outside: start it, watch it, end it, and give its lease up when it is dead."""

import contextlib
import os
import signal
import sys
import tempfile
import time

from datalens_service.base.errors import StaleLease, StoreUnavailable
from datalens_service.jobs.memory import compare_memory
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.workers.process.fork_server import WAITS_ASLEEP, ForkServer

_TOKEN_BYTES = 32
_STANDARD_ERROR = 2


def announce(lease: Lease) -> None:
    """Tell whoever started this process that it holds its lease itself from now on."""
    os.write(sys.stdout.fileno(), b"%d\n" % lease.token)


class JobProcess:
    """A process `workers.run_job --token TOKEN JOB_ID` in a session of its own, so that all of it can be killed.

    It runs under a lease that was claimed before it was started. Until it has adopted the lease, `hold` renews it.
    The process announces that on its standard output: a file, not a pipe, so that it outlives either side.

    Raises:
        WorkerUnavailable: It could not be started.
    """

    def __init__(self, lease: Lease, server: ForkServer) -> None:
        self.job_id = lease.job_id
        self._lease = lease
        self._next_renewal = time.monotonic() + lease.seconds / leases.RENEWALS
        self._announced = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this object)
        arguments = ["--token", str(lease.token), lease.job_id]
        environment = WAITS_ASLEEP | os.environ
        self._process = server.fork(arguments, environment, self._announced.fileno(), _STANDARD_ERROR)

    @property
    def pid(self) -> int:
        """Process id, and id of its group."""
        return self._process.pid

    @property
    def adopted(self) -> bool:
        """Return True if it holds or held its lease itself."""
        # pread leaves the offset alone, which both processes share.
        return b"\n" in os.pread(self._announced.fileno(), _TOKEN_BYTES, 0)

    def wait(self, seconds: float | None = None) -> int | None:
        """Exit code, or None if it still runs after `seconds`."""
        return self._process.wait(seconds)

    def terminate(self) -> None:
        """Ask it to give the job back."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> int | None:
        """End it and everything it started, at once; its exit code."""
        self._process.kill()
        return self._process.wait()

    def superseded(self, job: Job) -> bool:
        """Return True if it works on a job that is no longer its own."""
        return job.lease_token != self._lease.token or job.state != JobState.RUNNING

    def hold(self, database: Database) -> None:
        """Renew the lease while the process still starts."""
        if time.monotonic() < self._next_renewal or self.adopted:
            return
        self._next_renewal = time.monotonic() + self._lease.seconds / leases.RENEWALS
        with contextlib.suppress(StaleLease, StoreUnavailable):
            leases.renew(database, self._lease)

    def give_up(self, database: Database, *, counts: bool) -> None:
        """End the lease of this dead process now: it is known that nobody renews it.

        Args:
            counts: True if the start counts, also of a process that died before it began. One that did not begin
                because of its worker or machine uses none: a worker that cannot start any fails no job.

        Raises:
            StoreUnavailable: The database does not answer; the lease runs out in its own time.
        """
        with contextlib.suppress(StaleLease):
            if counts or self.adopted:
                leases.lose(database, self._lease, compare_memory(database, self.job_id))
            else:
                leases.give_back(database, self._lease)
