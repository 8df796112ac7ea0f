"""API keys: `dlk_` + 36 characters of base62 (214 bits) + `_` + CRC-32 in hexadecimal.

Shown once, kept as SHA-256. The first eight characters find the row; the remaining 166 bits are the secret. The
checksum lets a client, or a scanner for leaked secrets, tell a typing error from a revoked key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from sqlalchemy import exists, select

from datalens_service.errors import NotFound, Unauthorized
from datalens_service.store.chain import utc_now
from datalens_service.store.database import Database
from datalens_service.store.tables import ApiKeyRow

_ALPHABET = string.digits + string.ascii_letters
_LENGTH = 36
_PREFIX_LENGTH = 8
_FORM = re.compile(rf"dlk_([0-9A-Za-z]{{{_LENGTH}}})_([0-9a-f]{{8}})")


@dataclass(frozen=True)
class ApiKey:
    """What is kept of a key.

    Attributes:
        id: Stable name for revoking it.
        name: Given by its owner.
        prefix: The first characters behind `dlk_`, to recognise it by.
    """

    id: str
    name: str
    prefix: str
    created_at: datetime
    revoked_at: datetime | None

    @classmethod
    def of(cls, row: ApiKeyRow) -> ApiKey:
        """A copy of the row, without the hash."""
        return cls(row.id, row.name, row.prefix, row.created_at, row.revoked_at)


def create(database: Database, name: str) -> tuple[ApiKey, str]:
    """A new key: its record, and the plain text that is never shown again."""
    body = "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
    plain = f"dlk_{body}_{_checksum(body)}"
    row = ApiKeyRow(
        id=f"key_{uuid4().hex}",
        name=name,
        prefix=body[:_PREFIX_LENGTH],
        sha256=_digest(plain),
        created_at=utc_now(),
    )
    with database.transaction() as session:
        session.add(row)
        session.flush()
        return ApiKey.of(row), plain


def verify(database: Database, plain: str) -> ApiKey:
    """The key that `plain` is.

    Raises:
        Unauthorized: Malformed, unknown or revoked; the sentence does not say which of the latter two.
    """
    form = _FORM.fullmatch(plain)
    if form is None or form[2] != _checksum(form[1]):
        raise Unauthorized("This is not an API key; it starts with dlk_ and is copied in full.")
    with database.session() as session:
        row = session.scalars(select(ApiKeyRow).where(ApiKeyRow.prefix == form[1][:_PREFIX_LENGTH])).one_or_none()
    # Compared even if there is no row, so that time does not tell a known prefix from an unknown one.
    same = hmac.compare_digest(row.sha256 if row is not None else "", _digest(plain))
    if row is None or not same or row.revoked_at is not None:
        raise Unauthorized("This API key is unknown or was revoked.")
    return ApiKey.of(row)


def revoke(database: Database, key_id: str) -> ApiKey:
    """Make a key useless from now on. Repeatable.

    Raises:
        NotFound: No such key.
    """
    with database.transaction() as session:
        row = session.get(ApiKeyRow, key_id)
        if row is None:
            raise NotFound("There is no such API key.")
        row.revoked_at = row.revoked_at or utc_now()
        return ApiKey.of(row)


def list_keys(database: Database) -> tuple[ApiKey, ...]:
    """All keys, oldest first, revoked ones included."""
    with database.session() as session:
        rows = session.scalars(select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id))
        return tuple(ApiKey.of(row) for row in rows)


def any_key(database: Database) -> bool:
    """Whether a usable key exists."""
    with database.session() as session:
        return bool(session.scalar(select(exists().where(ApiKeyRow.revoked_at.is_(None)))))


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def _digest(plain: str) -> str:
    return hashlib.sha256(plain.encode()).hexdigest()
