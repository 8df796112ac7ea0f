"""Sessions of a browser: a signed random token in place of the key, so that the key itself is sent once and never kept.

A token names its end, whether it is used or not. The table has the SHA-256 of the token, whose key it stands for and
when it ends unless it is used. Without its row a token is worth nothing, in every API process at once: signing out
deletes the row, and a key that no longer works ends all of its sessions. The form token is a signature of the same for
another purpose and is in the pages alone: who makes a browser send the cookie does not know it.
"""

import hashlib
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from itsdangerous import BadSignature
from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from datalens_service.base.errors import StoreUnavailable, Unauthorized
from datalens_service.store.access import keys
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.installation import Purpose, create_signer
from datalens_service.store.schema.service_tables import BrowserSessionRow
from datalens_service.store.schema.tables import ApiKeyRow

LIFETIME_SECONDS: Final = 12 * 3600
UNUSED_SECONDS: Final = 3600
"""Without a request, a session ends after so long."""

_RENEWAL: Final = timedelta(minutes=5)
_TOKEN_BYTES: Final = 32
_ENDED: Final = "Your session has ended: sign in again."


@dataclass(frozen=True)
class BrowserSession:
    """A signed-in browser.

    Attributes:
        token: For the cookie; secret.
        form_token: For pages of the service itself, which send it with every change.
    """

    key: ApiKey
    token: str
    form_token: str

    def __repr__(self) -> str:
        return f"BrowserSession({self.key.id})"


def sign_in(database: Database, plain: str) -> BrowserSession:
    """A new session for whoever has a key.

    Raises:
        Unauthorized: The key is malformed, unknown or revoked.
    """
    with database.connection() as connection:
        key = keys.verify(connection, plain)
    return open_session(database, key)


def open_session(database: Database, key: ApiKey) -> BrowserSession:
    """A new session for a caller who was verified."""
    with database.transaction() as session:
        now = read_database_clock(session)
        last = int(now.timestamp()) + LIFETIME_SECONDS
        identity = f"{last}-{secrets.token_urlsafe(_TOKEN_BYTES)}"
        ends_at = now + timedelta(seconds=UNUSED_SECONDS)
        session.add(BrowserSessionRow(token_sha256=_digest(identity), key_id=key.id, expires_at=ends_at))
        return _sign(session, key, identity)


def resume(database: Database, token: str) -> BrowserSession:
    """The session that a token stands for.

    Raises:
        Unauthorized: Not signed here, unknown, signed out, too old, unused for too long, or its key was revoked.
    """
    with database.session() as session:
        identity, now = _verify(session, token), read_database_clock(session)
        key, expires_at = _find_open(session, identity, now)
        resumed = _sign(session, ApiKey.from_row(key), identity)
    ends_at = min(now + timedelta(seconds=UNUSED_SECONDS), _last_moment(identity))
    if ends_at - expires_at > _RENEWAL:
        # A visitor who only reads needs no database that takes writes.
        with suppress(StoreUnavailable):
            _renew(database, identity, ends_at)
    return resumed


def is_open(database: Database, token: str) -> bool:
    """Tell whether the session of a token is open. Asking does not prolong it."""
    with database.session() as session:
        try:
            _find_open(session, _verify(session, token), read_database_clock(session))
        except Unauthorized:
            return False
    return True


def sign_out(database: Database, token: str) -> None:
    """End the session of a token. Repeatable; a token that stands for nothing changes nothing."""
    with database.transaction() as session:
        try:
            identity = _verify(session, token)
        except Unauthorized:
            return
        session.execute(delete(BrowserSessionRow).where(BrowserSessionRow.token_sha256 == _digest(identity)))


def remove_expired(database: Database) -> None:
    """Forget sessions that have ended by themselves."""
    with database.transaction() as session:
        session.execute(delete(BrowserSessionRow).where(BrowserSessionRow.expires_at <= read_database_clock(session)))


def sign_out_everywhere(database: Database, key_id: str) -> None:
    """End all sessions that were signed in with a key. Repeatable."""
    with database.transaction() as session:
        session.execute(delete(BrowserSessionRow).where(BrowserSessionRow.key_id == key_id))


def _find_open(session: Session, identity: str, now: datetime) -> tuple[ApiKeyRow, datetime]:
    """The key of a session, and when the session ends unless it is used.

    Raises:
        Unauthorized: Unknown, signed out, unused for too long, or its key does not work any more.
    """
    # Looked up by its hash: how long that takes tells nothing about a token.
    row = session.get(BrowserSessionRow, _digest(identity))
    key = session.get(ApiKeyRow, row.key_id) if row is not None and now < row.expires_at else None
    if row is None or key is None or not keys.works(key, now):
        raise Unauthorized(_ENDED)
    return key, row.expires_at


def _renew(database: Database, identity: str, ends_at: datetime) -> None:
    own = BrowserSessionRow.token_sha256 == _digest(identity)
    with database.transaction() as session:
        session.execute(update(BrowserSessionRow).where(own).values(expires_at=ends_at))


def _last_moment(identity: str) -> datetime:
    return datetime.fromtimestamp(int(identity.partition("-")[0]), UTC)


def _sign(session: Session, key: ApiKey, identity: str) -> BrowserSession:
    token = create_signer(session, Purpose.BROWSER_SESSION).sign(identity)
    form_token = create_signer(session, Purpose.FORM).get_signature(identity)
    return BrowserSession(key, token.decode(), form_token.decode())


def _verify(session: Session, token: str) -> str:
    """Return what was signed: the last moment of a session and its random part.

    Raises:
        Unauthorized: This installation did not sign it, or an earlier version did.
    """
    try:
        identity = create_signer(session, Purpose.BROWSER_SESSION).unsign(token).decode()
        _last_moment(identity)
    except (BadSignature, ValueError):
        raise Unauthorized(_ENDED) from None
    return identity


def _digest(identity: str) -> str:
    return hashlib.sha256(identity.encode()).hexdigest()
