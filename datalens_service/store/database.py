"""The database: one engine, two kinds of transaction, migrations, and a check that refuses unsafe settings.

Reads see one consistent snapshot and cannot write. Writes hold the write lock from their first statement
(`BEGIN IMMEDIATE`) on SQLite; on PostgreSQL they run READ COMMITTED and lock the rows they decide on.
When `transaction()` returns, its content has reached the disk; when it raises, none of it has happened. Only if
the connection breaks in the middle of the commit nobody can tell; that is StoreUnavailable as well.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import alembic.command
import alembic.config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from datalens_service.base.clock import utc_now  # noqa: TID251 (SQLite has no clock but this machine's)
from datalens_service.base.errors import InvalidInput, StoreUnavailable
from datalens_service.store import patience
from datalens_service.store.charge_log import ChargeLog, LogIndex
from datalens_service.store.database_errors import READ_ONLY, translate
from datalens_service.store.schema import new_database
from datalens_service.store.schema.tables import Base

if TYPE_CHECKING:
    from datalens_service.store.postgresql import DatabaseServer

DEFAULT_CONNECTIONS = 15
DEFAULT_QUOTAS = "default_quotas"
"""Name of the quotas of tenants that have none of their own (`access/quotas.py`), in `info` of a transaction."""
_BUSY_SECONDS = 30
_POOL_SECONDS = 30
_SQLITE_CONNECTIONS = 60
# A process that is frozen in the middle of a transaction must not hold the row locks of an account for ever.
_TIMEOUTS = {"lock_timeout": 30, "idle_in_transaction_session_timeout": 60}
_POSTGRESQL_OPTIONS = " ".join(f"-c {name}={seconds}s" for name, seconds in _TIMEOUTS.items())
_CONNECT_SECONDS = 10
_UNANSWERED_MILLISECONDS = 30_000
_MIGRATIONS = str(Path(__file__).parents[1] / "migrations")
_MIGRATION_LOCK = 0x646C_6D69
_BEGIN = "datalens_begin"
_WAIT = "datalens_wait"
_OLDEST = (14,)
"""Version of PostgreSQL; those before it get no repairs any more."""

_SAFE_SQLITE = {"journal_mode": ("wal",), "synchronous": ("2", "3"), "foreign_keys": ("1",)}
_SAFE_POSTGRESQL = {
    "synchronous_commit": ("on", "remote_apply"),
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "session_replication_role": ("origin",),
}
"""Values of each setting with which no commit is forgotten."""

_TRUSTING = ("allow", "prefer", "require")
"""Values of sslmode with which libpq takes any certificate, or none."""


TRIGGERS = frozenset(
    {
        "ledger_entries_no_update",
        "ledger_entries_no_delete",
        "datasets_no_delete",
        "accounts_no_delete",
        "accounts_no_refund",
        "accounts_no_lowering",
        "accounts_no_slack_refund",
        "audit_entries_no_update",
        "audit_entries_no_delete",
        "record_fingerprints_no_update",
        "record_fingerprints_no_delete",
        "aggregates_no_update",
        "reservations_no_delete",
        "reservations_no_refund",
    }
)


class Database:
    """The database, which holds everything durable.

    Args:
        url: SQLAlchemy URL of an SQLite file or a PostgreSQL database.
        log: Log in which every charge is written before it is committed; None keeps no second record.
        connections: Most connections that this process opens to PostgreSQL.
        default_quotas: Quotas of tenants that have none of their own.

    Attributes:
        unchecked: Accounts that this process has not checked since its start, with the index of the log
            (`recovery.begin_check`); nothing may be reserved on them.

    Raises:
        InvalidInput: Another database, or an SQLite database in memory.
    """

    def __init__(
        self,
        url: str,
        log: ChargeLog | None = None,
        connections: int = DEFAULT_CONNECTIONS,
        default_quotas: Mapping[str, int | None] = MappingProxyType({}),
    ) -> None:
        self.url = url
        self.log = log
        self.default_quotas = default_quotas
        self.unchecked: dict[str, LogIndex] = {}
        self._engine = _engine(_checked(url), "BEGIN IMMEDIATE", "OFF", connections)
        self._server = _watched(self._engine, connections)
        self._reader = self._reading()
        # SQLite has one writer. Threads that queue up here are woken in turn; in SQLite they would sleep and try again.
        self._turn = threading.Lock() if self.dialect == "sqlite" else None

    @property
    def dialect(self) -> str:
        """Return the dialect, `sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @contextmanager
    def connection(self) -> Generator[Connection]:
        """The same snapshot as `session` for plain statements, at a third of its cost: for what every request asks.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with _translated(self._server), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def session(self) -> Generator[Session]:
        """A consistent snapshot that cannot write.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with _translated(self._server), Session(self._reader, autoflush=False) as session:
            yield session

    @contextmanager
    def transaction(self) -> Generator[Session]:
        """Commit all or nothing; durable when the block has been left without an exception.

        Raises:
            InsufficientStorage: The disk of the database is full.
            StoreUnavailable: The database does not answer or is locked.
        """
        writing = Session(self._engine, expire_on_commit=False, info={DEFAULT_QUOTAS: self.default_quotas})
        with self._alone() as seconds, _translated(self._server), writing as session, session.begin():
            if self.dialect == "sqlite":
                session.connection(execution_options={_WAIT: seconds})
            yield session

    @contextmanager
    def _alone(self) -> Generator[float]:
        """The turn of this thread to write, and how long it may still wait for writers of other processes."""
        seconds = patience.seconds_left(_BUSY_SECONDS)
        if self._turn is None:
            yield seconds
            return
        deadline = time.monotonic() + seconds
        with patience.waiting():
            taken = self._turn.acquire(timeout=seconds)
        if not taken:
            raise StoreUnavailable("The database is busy with other writes, so nothing happened; repeat.")
        try:
            yield max(0.0, deadline - time.monotonic())
        finally:
            self._turn.release()

    def migrate(self) -> None:
        """Bring the schema up to date; safe to call from several processes at once. `check` refuses an unknown one."""
        with _translated(self._server), self._migrating() as connection:
            if self.dialect == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            revision = _revision(connection)
            if revision is None:
                new_database.fill(connection)
                MigrationContext.configure(connection).stamp(_scripts(), "head")
            elif revision in {script.revision for script in _scripts().walk_revisions()} - {_head()}:
                alembic.command.upgrade(_alembic_config(connection), "head")

    def check(self) -> None:
        """Refuse to start on a database that could forget or alter a charge.

        Raises:
            StoreUnavailable: Naming the first setting that is unsafe, or whatever else is wrong, and its remedy.
        """
        with self._looking() as connection:
            _check_settings(connection)
            _check_revision(connection)
            missing = _find_missing_triggers(connection)
        if missing:
            raise StoreUnavailable(
                f"The trigger {missing[0]} is missing, so the ledger is not protected; restore the database."
            )

    def check_readable(self) -> None:
        """Refuse a database that this version cannot read.

        Raises:
            StoreUnavailable: It does not answer, or is not migrated.
        """
        with self._looking() as connection:
            _check_revision(connection)

    def find_missing_triggers(self) -> tuple[str, ...]:
        """Return the names of guards without which the database lets entries be changed or deleted."""
        with self._looking() as connection:
            return _find_missing_triggers(connection)

    @contextmanager
    def _looking(self) -> Generator[Connection]:
        """A connection that may write, but does not wait for the present writer."""
        looking = self._engine.execution_options(**{_BEGIN: "BEGIN"})
        with _translated(self._server), looking.connect() as connection:
            yield connection

    def check_certificate(self) -> None:
        """Refuse a URL that asks for TLS and takes any certificate.

        Raises:
            StoreUnavailable: Saying what the URL has to name.
        """
        if self._engine.url.query.get("sslmode") in _TRUSTING:
            raise StoreUnavailable(
                "⟦DATALENS_DATABASE_URL⟧ takes any certificate: whoever answers in the place of PostgreSQL reads and "
                "changes what is sent to it. Name sslmode=verify-full."
            )

    def dispose(self) -> None:
        """Close all connections of the pool."""
        self._reader.dispose()
        self._engine.dispose()

    @contextmanager
    def _migrating(self) -> Generator[Connection]:
        """A transaction in which SQLite may rebuild a table that others refer to."""
        if self.dialect != "sqlite":
            with self._engine.begin() as connection:
                yield connection
            return
        # SQLite ignores this pragma within a transaction, and deletes of a dropped table count as violations.
        engine = _engine(make_url(self.url), "BEGIN IMMEDIATE", "OFF", 1)
        event.listen(engine, "connect", _ignore_references)
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    def _reading(self) -> Engine:
        """Connections that cannot write; on SQLite they are others, told so once and not before every read."""
        if self.dialect == "sqlite":
            return _engine(make_url(self.url), "BEGIN", "ON", _SQLITE_CONNECTIONS)
        return self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


@contextmanager
def _translated(server: DatabaseServer | None) -> Generator[None]:
    try:
        with nullcontext() if server is None else server.admit():
            yield
    except PoolTimeout as error:
        raise StoreUnavailable("All connections to the database stayed in use, so nothing happened; repeat.") from error
    except DBAPIError as error:
        told = translate(error)
        if told is None:
            raise
        raise told from error


def _checked(url: str) -> URL:
    parsed = make_url(url)
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise InvalidInput(f"⟦DATALENS_DATABASE_URL⟧ must be sqlite or postgresql, not {parsed.drivername}.")
    if parsed.drivername == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidInput("⟦DATALENS_DATABASE_URL⟧ must name a file: a database in memory forgets what was spent.")
    return parsed


def _engine(url: URL, begin: str, query_only: str, connections: int) -> Engine:
    """`begin` and `query_only` are SQLite's: how a transaction begins, and whether it must not write."""
    if url.drivername != "sqlite":
        # Opened when they are needed and kept.
        pool = {"pool_size": connections, "max_overflow": 0}
        return create_engine(url, pool_pre_ping=True, connect_args=_postgresql_arguments(), **pool)
    # More than the API has threads: a connection that is opened for one request costs more than the request.
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, pool_size=_SQLITE_CONNECTIONS)
    event.listen(engine, "connect", functools.partial(_prepare_sqlite, query_only))
    event.listen(engine, "begin", _begin_reading if query_only == "ON" else functools.partial(_begin_sqlite, begin))
    return engine


def _watched(engine: Engine, connections: int) -> DatabaseServer | None:
    if engine.dialect.name == "sqlite":
        return None
    # Its driver is installed where there is such a server.
    from datalens_service.store.postgresql import DatabaseServer

    server = DatabaseServer(connections, _POOL_SECONDS)
    event.listen(engine, "do_connect", server.connect)
    return server


def _postgresql_arguments() -> dict[str, str | int]:
    """A server that is gone without a word must not hold up whoever asks: workers are alive while their loop turns."""
    return {
        "options": _POSTGRESQL_OPTIONS,
        "connect_timeout": _CONNECT_SECONDS,
        "tcp_user_timeout": _UNANSWERED_MILLISECONDS,
    }


def _prepare_sqlite(query_only: str, connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    # The driver must not open transactions on its own; the engine does.
    connection.isolation_level = None
    connection.create_function("clock_timestamp", 0, _tell_time)
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA fullfsync=ON")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute(f"PRAGMA query_only={query_only}")
    cursor.close()


def _tell_time() -> str:
    """Return the present instant as SQLite keeps it, for `PRESENT` of the tables."""
    return utc_now().replace(tzinfo=None).isoformat(" ", "microseconds")


def _ignore_references(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=OFF")
    cursor.close()


def _begin_reading(connection: Connection) -> None:
    # By the driver itself, at a third of the cost: this statement takes no lock and cannot fail.
    cursor = connection.connection.cursor()
    cursor.execute("BEGIN")
    cursor.close()


def _begin_sqlite(begin: str, connection: Connection) -> None:
    options = connection.get_execution_options()
    cursor = connection.connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={round(1000 * options.get(_WAIT, _BUSY_SECONDS))}")
    cursor.close()
    with patience.waiting():
        connection.exec_driver_sql(options.get(_BEGIN, begin))


def _check_settings(connection: Connection) -> None:
    """Refuse settings with which a commit could be forgotten, or a lock held for ever."""
    if connection.dialect.name == "sqlite":
        found = {name: str(connection.scalar(text(f"PRAGMA {name}"))) for name in _SAFE_SQLITE}
        _check_durability(found, _SAFE_SQLITE)
        return
    if (connection.dialect.server_version_info or _OLDEST) < _OLDEST:
        raise StoreUnavailable(f"The service needs PostgreSQL {_OLDEST[0]} or later; upgrade the server.")
    names = [*_SAFE_POSTGRESQL, *_TIMEOUTS, "transaction_read_only"]
    query = text("SELECT name, setting FROM pg_settings WHERE name = ANY(:names)")
    settings = {row.name: row.setting for row in connection.execute(query, {"names": names})}
    if settings["transaction_read_only"] == "on":
        raise StoreUnavailable(READ_ONLY)
    _check_durability(settings, _SAFE_POSTGRESQL)
    for name, seconds in _TIMEOUTS.items():
        if settings[name] == "0":
            raise StoreUnavailable(
                f"The database setting {name} is not in force, so a frozen process could hold an account for ever. A "
                f"pooler dropped it: run ALTER ROLE … SET {name} = '{seconds}s' for the user of the service, and "
                "restart the pooler."
            )


def _check_durability(found: Mapping[str, str], safe: Mapping[str, tuple[str, ...]]) -> None:
    for setting, accepted in safe.items():
        if found[setting] not in accepted:
            raise StoreUnavailable(
                f"The database setting {setting} is {found[setting]!r} and can lose charges; set it to {accepted[0]!r}."
            )


def _alembic_config(connection: Connection) -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", _MIGRATIONS.replace("%", "%%"))
    config.attributes |= {"connection": connection, "metadata": Base.metadata}
    return config


@functools.cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory(_MIGRATIONS)


def _head() -> str | None:
    return _scripts().get_current_head()


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _check_revision(connection: Connection) -> None:
    actual, head = _revision(connection), _head()
    if actual and head and actual > head:
        # A newer version works beside this one, or has taken its place.
        if head >= connection.scalars(text("SELECT oldest_revision FROM installation")).one():
            return
        raise StoreUnavailable(
            f"A newer version of the service made this database (revision {actual}, this version knows {head}): start "
            "that version, or restore a backup from before the upgrade."
        )
    if actual != head:
        raise StoreUnavailable(
            f"The database schema is at revision {actual}, this version needs {head}; migrate it, with version 1.0.0 "
            "first if it is older than that."
        )


def _find_missing_triggers(connection: Connection) -> tuple[str, ...]:
    names = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
        "postgresql": "SELECT tgname FROM pg_trigger WHERE tgenabled IN ('O', 'A')",
    }
    return tuple(sorted(TRIGGERS - set(connection.scalars(text(names[connection.dialect.name])))))
