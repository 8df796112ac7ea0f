"""Backups of a database under test, and their restoration in its place, as often as wanted."""

import shutil
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from sqlalchemy import create_engine, make_url

from datalens_service.store.database import Database
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.jobs.leases import Lease

from .books import claimed, new_dataset, new_job, read_account, state_of


class Backup(ABC):
    """A copy of a database as it is now; opened again after `restore`, the database is as it was then."""

    @abstractmethod
    def restore(self) -> None: ...

    @abstractmethod
    def remove(self) -> None:
        """Remove the copy."""


def back_up(database: Database) -> Backup:
    return _SqliteBackup(database) if database.dialect == "sqlite" else _PostgresqlBackup(database)


def spend_all_and_restore(database: Database) -> tuple[StoredDataset, int, Lease]:
    """A restored database whose log alone knows that a job spent the whole budget.

    Returns:
        The data set, its limit in units, and the lease of the forgotten job.
    """
    dataset = new_dataset(database)
    limit = state_of(database, dataset.id).limit_units
    backup = back_up(database)
    lease = claimed(database, new_job(database, dataset.id, limit).id)
    read_account(database, lease).charge(0, "votes", limit)
    backup.restore()
    return dataset, limit, lease


def spend_what_the_backup_reserves(database: Database) -> tuple[StoredDataset, int, Job]:
    """A restored database in which a queued job reserves the whole budget, which another has spent by the log.

    Returns:
        The data set, its limit in units, and the queued job.
    """
    dataset = new_dataset(database)
    limit = state_of(database, dataset.id).limit_units
    first = new_job(database, dataset.id, limit)
    backup = back_up(database)
    jobs.request_cancel(database, first.id)
    read_account(database, claimed(database, new_job(database, dataset.id, limit).id)).charge(0, "votes", limit)
    backup.restore()
    return dataset, limit, first


def remove(database: Database) -> None:
    """Remove a database that nobody needs any more."""
    database.dispose()
    if database.dialect == "sqlite":
        _remove_file(_file(database))
    else:
        administrate(database, f"DROP DATABASE {_name(database)} WITH (FORCE)")


class _SqliteBackup(Backup):
    """Taken while the database is in use."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._copy = _file(database).with_suffix(f".{uuid4().hex}")
        with closing(sqlite3.connect(_file(database))) as source, closing(sqlite3.connect(self._copy)) as target:
            source.backup(target)

    def restore(self) -> None:
        remove(self._database)
        shutil.copy(self._copy, _file(self._database))

    def remove(self) -> None:
        self._copy.unlink()


class _PostgresqlBackup(Backup):
    """Taken by the server from its files, for which nobody may be connected: faster than pg_dump."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._copy = f"copy_{uuid4().hex}"
        database.dispose()
        administrate(database, f"CREATE DATABASE {self._copy} TEMPLATE {_name(database)}")

    def restore(self) -> None:
        remove(self._database)
        administrate(self._database, f"CREATE DATABASE {_name(self._database)} TEMPLATE {self._copy}")

    def remove(self) -> None:
        administrate(self._database, f"DROP DATABASE {self._copy}")


def _name(database: Database) -> str:
    return str(make_url(database.url).database)


def _file(database: Database) -> Path:
    return Path(_name(database))


def _remove_file(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def administrate(database: Database, statement: str) -> None:
    """Outside of any transaction, and connected to another database of the server."""
    engine = create_engine(make_url(database.url).set(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()
