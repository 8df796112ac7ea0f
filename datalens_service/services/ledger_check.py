"""A check of all accounts, beside the requests: the API answers at once, and an account waits for its own check only.

Before the API starts, `begin_check` has refused a database that does not belong to its log.
"""

import threading
from typing import Final

import structlog

from datalens_service.base import logs
from datalens_service.base.errors import StoreUnavailable
from datalens_service.store.charge_log import LogIndex
from datalens_service.store.database import Database
from datalens_service.store.ledger.recovery import begin_check, finish_check

_RETRY_SECONDS: Final = 5.0
_log = structlog.get_logger("datalens.audit")


class LedgerCheck:
    """A thread that checks the accounts that no request has had checked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopping = threading.Event()
        # The index, which may be long, is gone when the thread ends.
        self._thread = threading.Thread(target=self._run, args=(begin_check(database),), name="check", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the account that is being checked; the next start checks all of them again."""
        self._stopping.set()
        self._thread.join()

    def _run(self, log: LogIndex) -> None:
        while not self._stopping.is_set():
            try:
                frozen = finish_check(self._database, log, self._stopping.is_set)
            except StoreUnavailable as error:
                _log.error("accounts not audited yet", detail=error.detail)
            except Exception as error:  # noqa: BLE001 - what was not checked stays closed, and is tried again
                _log.error("unexpected", **logs.outline(error))
            else:
                _log.info("accounts audited", frozen=len(frozen))
                return
            self._stopping.wait(_RETRY_SECONDS)
