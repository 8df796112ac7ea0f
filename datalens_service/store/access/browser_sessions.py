"""Sessions of a browser: a signed random id in place of the key, so that the key itself is sent once and never stored.

The table has the SHA-256 of the id, the key that signed in, and the end. Without its row a token is worth nothing, in
every API process at once: signing out deletes the row, and a key that no longer works ends all of its sessions. Without
the signature of this installation (`token_signing`) no row is looked for. The form token is a signature of the same id
under another key, and is in the pages alone: who makes a browser send the cookie does not know it.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from itsdangerous import BadData
from sqlalchemy import delete, orm

from datalens_service.clock import utc_now
from datalens_service.errors import Unauthorized
from datalens_service.store.access import keys
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.access.token_signing import Purpose, token_serializer, token_signature
from datalens_service.store.database import Database
from datalens_service.store.service_tables import BrowserSessionRow
from datalens_service.store.tables import ApiKeyRow

LIFETIME_SECONDS: Final = 12 * 3600

_ID_BYTES: Final = 32


@dataclass(frozen=True)
class Session:
    """A signed-in browser.

    Attributes:
        key: That was signed in with.
        token: For the cookie; secret.
        form_token: For pages of the service itself, which send it with every change.
    """

    key: ApiKey
    token: str
    form_token: str

    def __repr__(self) -> str:
        return f"Session({self.key.id})"


def sign_in(database: Database, plain: str) -> Session:
    """A new session for whoever has a key; rows of sessions that have ended by themselves go.

    Raises:
        Unauthorized: The key is malformed, unknown or revoked.
    """
    with database.connection() as connection:
        key = keys.verify(connection, plain)
    session_id, now = secrets.token_urlsafe(_ID_BYTES), utc_now()
    ends_at = now + timedelta(seconds=LIFETIME_SECONDS)
    with database.transaction() as session:
        session.execute(delete(BrowserSessionRow).where(BrowserSessionRow.expires_at <= now))
        session.add(BrowserSessionRow(token_sha256=_digest(session_id), key_id=key.id, expires_at=ends_at))
        return _session(session, key, session_id)


def resume(database: Database, token: str) -> Session:
    """The session that a token stands for.

    Raises:
        Unauthorized: Unknown, signed out, too old, or its key was revoked.
    """
    now = utc_now()
    with database.session() as session:
        session_id = _session_id(session, token)
        row = session.get(BrowserSessionRow, _digest(session_id)) if session_id is not None else None
        key = session.get(ApiKeyRow, row.key_id) if row is not None and now < row.expires_at else None
        if session_id is None or key is None or not keys.works(key, now):
            raise Unauthorized("Your session has ended: sign in again.")
        return _session(session, ApiKey.of(key), session_id)


def sign_out(database: Database, token: str) -> None:
    """End the session of a token. Repeatable; a token that stands for nothing changes nothing."""
    with database.transaction() as session:
        session_id = _session_id(session, token)
        if session_id is not None:
            session.execute(delete(BrowserSessionRow).where(BrowserSessionRow.token_sha256 == _digest(session_id)))


def sign_out_everywhere(database: Database, key_id: str) -> None:
    """End all sessions that were signed in with a key. Repeatable."""
    with database.transaction() as session:
        session.execute(delete(BrowserSessionRow).where(BrowserSessionRow.key_id == key_id))


def _session(session: orm.Session, key: ApiKey, session_id: str) -> Session:
    token = token_serializer(session, Purpose.BROWSER_SESSION).dumps(session_id)
    return Session(key, str(token), token_signature(session, Purpose.FORM_TOKEN, session_id))


def _session_id(session: orm.Session, token: str) -> str | None:
    """The id that a token was signed for; None if this installation did not sign it, or not like this."""
    serializer = token_serializer(session, Purpose.BROWSER_SESSION)
    try:
        session_id = serializer.loads(token)
    except (BadData, UnicodeError):
        return None
    # Base64 has several spellings of the same bytes; one of them is ours.
    return session_id if isinstance(session_id, str) and serializer.dumps(session_id) == token else None


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()
