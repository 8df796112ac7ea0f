"""Sessions of a browser: a signed token in place of the key, so that the key itself is sent once and never kept.

    token = key id . expiry . nonce . HMAC-SHA256(hash of the key, "session" and all of these)

There is no table: a token is as good as its key, for at most twelve hours, and ends with it. Its form token, a second
HMAC, is in the pages alone: who makes a browser send the cookie does not know it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from typing import Final

from datalens_service.errors import Unauthorized
from datalens_service.store import keys
from datalens_service.store.chain import utc_now
from datalens_service.store.database import Database
from datalens_service.store.keys import ApiKey
from datalens_service.store.tables import ApiKeyRow

LIFETIME_SECONDS: Final = 12 * 3600

_FORM: Final = re.compile(r"(?P<key>key_[0-9a-f]{32})\.(?P<expires>[0-9]{1,12})\.[A-Za-z0-9_-]{22}\.[0-9a-f]{64}")


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
    """A new session for whoever has a key.

    Raises:
        Unauthorized: The key is malformed, unknown or revoked.
    """
    with database.connection() as connection:
        key = keys.verify(connection, plain)
    expires = int(time.time()) + LIFETIME_SECONDS
    claim = f"{key.id}.{expires}.{secrets.token_urlsafe(16)}"
    secret = _secret(database, key.id)
    return _session(key, f"{claim}.{_seal(secret, 'session', claim)}", secret)


def resume(database: Database, token: str) -> Session:
    """The session that a token stands for.

    Raises:
        Unauthorized: Altered, too old, or its key was revoked.
    """
    form = _FORM.fullmatch(token)
    secret = _secret(database, form["key"]) if form else b""
    claim, _, seal = token.rpartition(".")
    # Compared also without a key, so that time does not tell a known one from an unknown one.
    same = hmac.compare_digest(seal.encode(), _seal(secret, "session", claim).encode())
    if not form or not secret or not same or int(form["expires"]) <= time.time():
        raise Unauthorized("Your session has ended: sign in again.")
    return _session(keys.get(database, form["key"]), token, secret)


def _session(key: ApiKey, token: str, secret: bytes) -> Session:
    return Session(key, token, _seal(secret, "form", token))


def _secret(database: Database, key_id: str) -> bytes:
    """What is known of a key that works; empty for all others."""
    with database.session() as session:
        row = session.get(ApiKeyRow, key_id)
        return row.sha256.encode() if row is not None and keys.works(row, utc_now()) else b""


def _seal(secret: bytes, purpose: str, text: str) -> str:
    return hmac.new(secret, f"datalens {purpose} {text}".encode(), hashlib.sha256).hexdigest()
