"""What the Celery worker process of this interpreter is: its settings, database and loop."""

from __future__ import annotations

import functools

from datalens_service.gateways.startup import start
from datalens_service.settings import Settings
from workers.process.queue_worker import QueueWorker


@functools.cache
def queue_worker() -> QueueWorker:
    """The worker of this process, its database audited; made before Celery takes a message.

    Raises:
        StoreUnavailable: The database does not answer or could lose charges.
        LedgerCorrupt: It does not belong to its ledger log.
    """
    settings = Settings()
    return QueueWorker(start(settings), settings)
