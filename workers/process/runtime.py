"""What the tasks of one Celery worker process share: settings, database, and the wish to stop."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass

from datalens_service.services.startup import start
from datalens_service.settings import Settings
from datalens_service.store.database import Database


@dataclass(frozen=True)
class Runtime:
    """One per worker process.

    Attributes:
        settings: Of the deployment.
        database: Audited at the start of the worker.
        stopping: Set when the worker is asked to end.
    """

    settings: Settings
    database: Database
    stopping: threading.Event


@functools.cache
def runtime() -> Runtime:
    """The runtime of this process; made when the worker starts, before it takes a message.

    Raises:
        StoreUnavailable: The database does not answer or could lose charges.
        LedgerCorrupt: It does not belong to its ledger log.
    """
    settings = Settings()
    return Runtime(settings, start(settings), threading.Event())
