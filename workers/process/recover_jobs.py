"""Cares for jobs whose workers were lost; any process that is alive does it."""

import time
from typing import Final

import structlog

from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.jobs.private_folder import remove_leftovers
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.jobs import leases

log = structlog.get_logger()

_SLOW_SHARE: Final = 5
"""Part of a lease: a database that answers later was away, and a clock that gains more at once was set forwards."""


class Recovery:
    """Puts jobs of lost workers back into the queue; safe in several processes at once.

    Nobody renews a lease while the database is away, and a clock that is set forwards lets all of them run out.
    Afterwards, every worker has a whole lease to show that it lives.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._was_away = False
        self._ahead = float("inf")
        self._spared_until = float("-inf")

    def run(self) -> None:
        """Put jobs with a lease that ran out back, or end them; remove what ended jobs left.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        silent = self._list_silent()
        if silent and time.monotonic() >= self._spared_until:
            for job in leases.expire_leases(self._database, silent):
                log.warning("worker lost", job_id=job.id, state=job.state.value, attempts=job.attempts)
        remove_leftovers(self._database, self._settings.data_dir)

    def _list_silent(self) -> tuple[str, ...]:
        asked = time.monotonic()
        try:
            with self._database.session() as session:
                now = read_database_clock(session)
            silent = leases.list_silent(self._database, now=now)
        except StoreUnavailable:
            self._was_away = True
            raise
        answered, seconds = time.monotonic(), self._settings.lease_seconds
        before, self._ahead = self._ahead, now.timestamp() - asked
        if self._was_away or max(answered - asked, self._ahead - before) > seconds / _SLOW_SHARE:
            self._was_away, self._spared_until = False, answered + seconds
        return silent
