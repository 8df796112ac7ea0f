"""Sentences for errors of the database, each of which follows from its cause and says what to do.

A server gives the cause as an SQLSTATE. Before a connection stands there is none: then libpq, the server and PgBouncer
say it in words, which are looked up here. A server that speaks another language gets the sentence for unknown causes.
"""

import re
import sqlite3
from typing import Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from datalens_service.base.errors import InsufficientStorage, StoreUnavailable

_URL: Final = "⟦DATALENS_DATABASE_URL⟧"
_FULL: Final = "The disk of the database is full or over its quota, so nothing happened; free it, then repeat."
_LOCKED: Final = "Another process holds the row or table that this needs, so nothing happened; repeat."
_CROWDED: Final = (
    "The database takes no further connections, so nothing happened; repeat. If it stays, raise its limit "
    "(max_connections of PostgreSQL, default_pool_size of PgBouncer) or lower ⟦DATALENS_DATABASE_CONNECTIONS⟧."
)
_REFUSED: Final = f"The database refuses the user or the password of {_URL}; correct them, or its pg_hba.conf."
_NO_SUCH_DATABASE: Final = f"The server has no database of the name in {_URL}; create it, or correct the name."
_NOT_READY: Final = "The database is starting, stopping or recovering, so nothing happened; repeat in a moment."
_FORBIDDEN: Final = f"The user of {_URL} may not use the tables of the service; make it their owner."
_OTHER_TABLES: Final = (
    "The database has the tables of another version of the service, so nothing happened: run one version."
)
_BROKEN: Final = "The database cannot read or write its own files; look at its disk and its log."
_DAMAGED: Final = "The file of the database is damaged, or none: restore it from a backup."
_LOST: Final = "The connection to the database was lost; look whether the operation happened, then repeat."
_UNKNOWN: Final = "The database did not take the operation, so it did not happen; repeat. Its log may say why."
READ_ONLY: Final = (
    "The database is read-only, by its settings or as a standby, so nothing happened. Name the primary in "
    f"{_URL}, or make this database writable."
)

_OF_POOLERS: Final = "08P01"
"""State that PgBouncer gives before it closes a connection, whatever the cause is."""

_BY_SQLSTATE: Final[dict[str | None, str]] = {
    "25006": READ_ONLY,
    "28000": _REFUSED,
    "28P01": _REFUSED,
    "3D000": _NO_SUCH_DATABASE,
    "40001": "Two operations changed the same rows, so this one did not happen; repeat.",
    "40P01": "Two operations waited for each other, so this one did not happen; repeat.",
    "42501": _FORBIDDEN,
    "42703": _OTHER_TABLES,
    "42P01": _OTHER_TABLES,
    "53100": _FULL,
    "53200": "The database has no memory left, so nothing happened; repeat. If it stays, give it more.",
    "53300": _CROWDED,
    "55P03": _LOCKED,
    "57014": "The database gave the operation up, so it did not happen; repeat. If it stays, raise statement_timeout.",
    "57P03": _NOT_READY,
    "58030": _BROKEN,
    "58P01": _BROKEN,
    "XX001": _BROKEN,
    "XX002": _BROKEN,
}

_BY_WORDS: Final = (
    (
        r"certificate",
        f"The certificate of the database cannot be verified. Name the file of its authority as sslrootcert in {_URL}, "
        "and the host as the certificate does.",
    ),
    (
        r"does not support SSL|SSL required",
        f"The database and {_URL} do not agree on TLS; switch it on in the database, or name sslmode=disable where "
        "nobody else can reach the network between them.",
    ),
    (
        r"unsupported startup parameter",
        "PgBouncer refuses the timeouts that the service asks for; set its ignore_startup_parameters to options, and "
        "give the timeouts to the role (docs/deploy.md).",
    ),
    (
        r"too many clients|too many connections|connection slots are reserved|no more connections allowed"
        r"|query_wait_timeout",
        _CROWDED,
    ),
    (r"database \S+ does not exist|no such database|not currently accepting connections", _NO_SUCH_DATABASE),
    (
        r"authentication failed|no password supplied|no pg_hba.conf entry|pg_hba.conf rejects|role \S+ does not exist"
        r"|not permitted to log in|no such user|auth failed|wrong password",
        _REFUSED,
    ),
    (r"is starting up|is shutting down|recovery mode|not yet accepting|not accepting|shut down", _NOT_READY),
    (r"failed to resolve|could not translate", f"The host of {_URL} has no address; correct its name, or look at DNS."),
    (
        r"refused|No such file|timeout|timed out|unreachable|No route|is silent",
        f"The database does not answer at the address in {_URL}, so nothing happened; start it, or correct the "
        "address, then repeat.",
    ),
)
"""Words of errors without an SQLSTATE of their own, most telling first."""

_SQLITE: Final = {
    sqlite3.SQLITE_BUSY: "The database is busy with other writes, so nothing happened; repeat.",
    sqlite3.SQLITE_CANTOPEN: "The file of the database cannot be opened; look at its folder, owner and mode.",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _BROKEN,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: "The file of the database cannot be written; look at its owner, its mode and its disk.",
}
"""By primary code."""


def translate(error: DBAPIError) -> StoreUnavailable | None:
    """Return the error to raise in the place of one of the driver; None for a mistake of this program."""
    state = getattr(error.orig, "sqlstate", None)
    # PostgreSQL reports a session that it ended for idling in a transaction (25P03) as an internal error.
    said = _LOST if error.connection_invalidated and state != _OF_POOLERS else None
    said = said or _explain(error.orig, state)
    if said is None and error.connection_invalidated:
        said = _LOST
    if said is None and not isinstance(error, OperationalError | InterfaceError):
        return None
    return (InsufficientStorage if said == _FULL else StoreUnavailable)(said or _UNKNOWN)


def _explain(error: BaseException | None, state: str | None) -> str | None:
    if isinstance(error, sqlite3.Error):
        if str(error).startswith(("no such table", "no such column")):
            return _OTHER_TABLES
        code = getattr(error, "sqlite_errorcode", 0)
        # A quota comes as the second: SQLite knows ENOSPC only.
        return _FULL if code == sqlite3.SQLITE_IOERR_WRITE else _SQLITE.get(code & 0xFF)
    if state not in (None, _OF_POOLERS):
        return _BY_SQLSTATE.get(state)
    return next((said for words, said in _BY_WORDS if re.search(words, str(error))), None)
