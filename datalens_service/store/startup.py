"""Opening the store as the settings say: once with the full audit, or in a job process beside it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url

from datalens_service.settings import Settings
from datalens_service.store.database import Database
from datalens_service.store.disk import check_writable
from datalens_service.store.mirror import LedgerLog
from datalens_service.store.recovery import check_against_log


def start(settings: Settings) -> Database:
    """For the API, the supervisor and Celery workers: migrate, refuse unsafe settings, audit all accounts.

    Raises:
        StoreUnavailable: The database does not answer or is set up so that it could lose charges.
        LedgerCorrupt: Log and database do not belong together. A single account that does not add up is frozen
            instead (`recovery.py`).
    """
    database = _database(settings)
    database.migrate()
    database.check()
    check_against_log(database)
    return database


def connect(settings: Settings) -> Database:
    """For job processes and read-only commands: the store that `start` has prepared.

    Raises:
        StoreUnavailable: The database does not answer, is not migrated, or could lose charges.
    """
    database = _database(settings)
    database.check()
    return database


def check_disks(settings: Settings) -> None:
    """Whether there is room for charges, records and artifacts.

    Raises:
        InsufficientStorage: The disk of data_dir, of the ledger log or of an SQLite database is full.
        StoreUnavailable: One of them cannot be written.
    """
    check_writable(settings.data_dir, "data_dir")
    check_writable(settings.ledger_log_path.parent, "the ledger log")
    url = make_url(settings.url)
    if url.get_backend_name() == "sqlite" and url.database:
        check_writable(Path(url.database).parent, "the database")


def _database(settings: Settings) -> Database:
    # Records, keys and the journal are for the service's own user only.
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Database(settings.url, LedgerLog(settings.ledger_log_path))
