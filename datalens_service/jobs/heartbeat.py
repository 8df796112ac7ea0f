"""The thread that holds the lease, and ends the process when the lease is lost."""

from __future__ import annotations

import os
import threading
from types import TracebackType

import structlog

from datalens_service.errors import StaleLease, StoreUnavailable
from datalens_service.jobs.exit_codes import Exit
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.leases import Lease

log = structlog.get_logger()


class Heartbeat:
    """Renews a lease three times per `lease.seconds` while its block runs.

    A worker that lost its job must not go on, wherever it is just now: the process ends at once, without
    unwinding, so that nothing of it is written or released. The fencing token would refuse it anyway.
    """

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._lease = lease
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self._lease.seconds / 3):
            try:
                self._renew()
            except StoreUnavailable:
                # Nobody else can claim the job either; the next beat tries again.
                log.warning("lease not renewed, database unavailable", job_id=self._lease.job_id)

    def _renew(self) -> None:
        try:
            self._lease = leases.renew(self._database, self._lease)
        except StaleLease:
            if leases.was_lost(self._database, self._lease):
                self._die()
            self._ended.set()

    def _die(self) -> None:
        if self._ended.is_set():
            return
        log.warning("lease lost, process ends", job_id=self._lease.job_id, lease_token=self._lease.token)
        os._exit(Exit.FENCED)
