"""Links by which one partner gets one release without a key, for as long as its owner says.

A link is a secret that is shown once (`shown_secrets.py`). It ends at a time, when it is revoked, or with the key that
made it when that is revoked; a key that expires or is replaced leaves its links alone.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self
from uuid import uuid4

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from datalens_service.base.clock import to_second
from datalens_service.base.errors import InvalidInput, Unauthorized
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.access.shown_secrets import PATTERN, PREFIX_LENGTH, digest, draw_secret, matches
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.rows import copy_row, get_or_refuse
from datalens_service.store.schema.service_tables import AuditEntryRow, ReleaseLinkRow
from datalens_service.store.schema.tables import PRESENT, ApiKeyRow

_BY_PREFIX: Final = (
    select(ReleaseLinkRow, ApiKeyRow.revoked_at.label("key_revoked_at"), PRESENT.label("read_at"))
    .join(ApiKeyRow, ApiKeyRow.id == ReleaseLinkRow.key_id)
    .where(ReleaseLinkRow.prefix == bindparam("prefix"))
)


@dataclass(frozen=True)
class ReleaseLink:
    """The stored facts about a link.

    Attributes:
        key_id: The key that made it.
        partner: Name of the partner, for the tenant alone.
        ended: True if it no longer works.
    """

    id: str
    tenant_id: str
    release_id: str
    key_id: str
    partner: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    ended: bool

    @classmethod
    def from_row(cls, row: ReleaseLinkRow, key_revoked_at: datetime | None, now: datetime) -> Self:
        """A copy of the row, without the hash."""
        expired = row.expires_at is not None and row.expires_at <= now
        return copy_row(cls, row, ended=expired or row.revoked_at is not None or key_revoked_at is not None)


def create(
    database: Database, key: ApiKey, release_id: str, *, partner: str, expires_at: datetime | None
) -> tuple[ReleaseLink, str]:
    """A new link: its record, and the secret that is never shown again.

    Args:
        expires_at: None for a link that works until it is revoked.

    Raises:
        InvalidInput: It would have expired already.
    """
    secret = draw_secret()
    row = ReleaseLinkRow(
        id=f"lnk_{uuid4().hex}",
        tenant_id=key.tenant_id,
        release_id=release_id,
        key_id=key.id,
        partner=partner,
        prefix=secret[:PREFIX_LENGTH],
        sha256=digest(secret),
        expires_at=expires_at,
    )
    with database.transaction() as session:
        now = read_database_clock(session)
        if expires_at is not None and expires_at <= now:
            raise InvalidInput("⟦link.expires_at⟧ lies in the past.")
        session.add(row)
        session.flush()
        return ReleaseLink.from_row(row, None, now), secret


def verify(database: Database, secret: str) -> ReleaseLink:
    """Return the link that this secret is.

    Raises:
        Unauthorized: Unknown, expired or revoked; nothing tells which.
    """
    link = _find(database, secret) if re.fullmatch(PATTERN, secret) else None
    if link is None or link.ended:
        raise Unauthorized("This link is unknown, has expired or was revoked.")
    return link


def _find(database: Database, secret: str) -> ReleaseLink | None:
    with database.session() as session:
        found = session.execute(_BY_PREFIX, {"prefix": secret[:PREFIX_LENGTH]}).one_or_none()
        row, key_revoked_at, now = found or (None, None, None)
        same = matches(None if row is None else row.sha256, secret)
        return ReleaseLink.from_row(row, key_revoked_at, now) if row and now and same else None


def get(database: Database, link_id: str) -> ReleaseLink:
    """Return a link, ended or not."""
    with database.session() as session:
        return _read(session, get_or_refuse(session, ReleaseLinkRow, link_id, "link"))


def list_links(database: Database, release_id: str) -> tuple[ReleaseLink, ...]:
    """Return all links of a release, oldest first, ended ones included."""
    query = select(ReleaseLinkRow).where(ReleaseLinkRow.release_id == release_id)
    with database.session() as session:
        rows = session.scalars(query.order_by(ReleaseLinkRow.created_at, ReleaseLinkRow.id)).all()
        return tuple(_read(session, row) for row in rows)


def find_last_use(database: Database, release_id: str) -> dict[str, datetime]:
    """Find when each link of a release was last used, by the id of the link, in the audit journal."""
    used = (AuditEntryRow.tenant_id == ReleaseLinkRow.tenant_id, AuditEntryRow.actor == ReleaseLinkRow.id)
    last = select(func.max(AuditEntryRow.at)).where(*used).scalar_subquery()
    query = select(ReleaseLinkRow.id, last).where(ReleaseLinkRow.release_id == release_id)
    with database.session() as session:
        return {link_id: to_second(at) for link_id, at in session.execute(query) if at is not None}


def revoke(database: Database, link_id: str) -> ReleaseLink:
    """Make a link useless from now on. Repeatable."""
    with database.transaction() as session:
        row = get_or_refuse(session, ReleaseLinkRow, link_id, "link")
        row.revoked_at = row.revoked_at or read_database_clock(session)
        session.flush()
        return _read(session, row)


def _read(session: Session, row: ReleaseLinkRow) -> ReleaseLink:
    key = get_or_refuse(session, ApiKeyRow, row.key_id, "API key")
    return ReleaseLink.from_row(row, key.revoked_at, read_database_clock(session))
