"""Opening the store as the settings say: with an audit, or in a job process beside one that was audited."""

import os
from contextlib import suppress
from pathlib import Path

import structlog
from sqlalchemy import make_url

from datalens_service.base.settings import Settings, find_unknown_variables
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.database import Database
from datalens_service.store.datasets.private_modes import keep_to_oneself, private_folder, tighten, tighten_all
from datalens_service.store.disk import check_writable, list_mounts
from datalens_service.store.ledger.recovery import check_against_log

_log = structlog.get_logger("datalens.startup")


def start(settings: Settings) -> Database:
    """Open the store for the supervisor and Celery workers: `prepare`, and audit all accounts.

    Raises:
        StoreUnavailable: The database cannot be used; the message names the reason and the remedy.
        LedgerCorrupt: Log and database do not belong together. A single account that does not add up is frozen
            instead (`recovery.py`).
    """
    database = prepare(settings)
    check_against_log(database)
    return database


def prepare(settings: Settings) -> Database:
    """Migrate, and refuse unsafe settings; nothing may be given out or reserved before an audit.

    What the process creates from then on is for its own user alone; what others could read is tightened.

    Raises:
        StoreUnavailable: The database does not answer or is set up so that it could lose charges, or others can read
            the data folder and that cannot be changed.
    """
    keep_to_oneself()
    private_folder(settings.data_dir)
    tighten_all(settings.data_dir)
    database = _database(settings)
    database.migrate()
    database.check()
    return database


def connect(settings: Settings) -> Database:
    """Open the store that `start` has prepared, for job processes and commands.

    Raises:
        StoreUnavailable: The database does not answer, is not migrated, or could lose charges.
    """
    database = _open_private(settings)
    database.check()
    return database


def connect_to_read(settings: Settings) -> Database:
    """Open a store whose guards may be gone, to find out what is wrong with it; nothing may be charged to it.

    Raises:
        StoreUnavailable: The database does not answer, or is not migrated.
    """
    database = _open_private(settings)
    database.check_readable()
    return database


def _open_private(settings: Settings) -> Database:
    keep_to_oneself()
    private_folder(settings.data_dir)
    return _database(settings)


def check_disks(settings: Settings) -> None:
    """Check that there is room for charges, records and artifacts.

    Raises:
        InsufficientStorage: The disk of data_dir, of the ledger log or of an SQLite database is full.
        StoreUnavailable: One of them cannot be written.
    """
    _check(_list_main_disks(settings))


def check_all_disks(settings: Settings) -> None:
    """Check these disks and those that are mounted below data_dir, which not every job and upload needs.

    Raises:
        InsufficientStorage: One of them is full.
        StoreUnavailable: One of them cannot be written.
    """
    _check(list_disks(settings))


def list_disks(settings: Settings) -> dict[str, Path]:
    """A folder on each disk that the service writes to, those mounted below data_dir among them."""
    disks = _list_main_disks(settings)
    with suppress(OSError):
        own = settings.data_dir.resolve()
        disks |= {f"data/{path.relative_to(own)}": path for path in list_mounts(own)}
    return disks


def _list_main_disks(settings: Settings) -> dict[str, Path]:
    disks = {"data": settings.data_dir, "ledger_log": settings.ledger_log_path.parent}
    url = make_url(settings.url)
    if url.get_backend_name() == "sqlite" and url.database:
        disks["database"] = Path(url.database).parent
    return disks


def _check(disks: dict[str, Path]) -> None:
    names = {"data": "⟦DATALENS_DATA_DIR⟧", "ledger_log": "the ledger log", "database": "the database"}
    # By default they are one folder.
    first = {folder: name for name, folder in reversed(disks.items())}
    for folder, name in first.items():
        check_writable(folder, names.get(name) or f"{name.removeprefix('data/')} in ⟦DATALENS_DATA_DIR⟧")


def warn_of_unknown_variables() -> None:
    """Log which variables set nothing, once per process and by name only: a value may be a password."""
    for name in find_unknown_variables(os.environ):
        _log.warning("unknown variable, ignored", variable=name)


def _database(settings: Settings) -> Database:
    """The database, after its files were made private: they need not lie in the data folder."""
    tighten(settings.ledger_log_path)
    if (path := make_url(settings.url).database) and settings.url.startswith("sqlite"):
        # SQLite gives the files that it makes beside a database the mode of the database.
        with suppress(OSError):
            Path(path).touch(0o600)
        for name in (path, f"{path}-wal", f"{path}-shm"):
            tighten(Path(name))
    log = ChargeLog(settings.ledger_log_path)
    return Database(settings.url, log, settings.database_connections, settings.default_quotas)
