"""API keys: `dlk_` + a secret that is shown once (`shown_secrets.py`) + `_` + CRC-32 in hexadecimal.

The checksum lets a client, or a scanner for leaked secrets, tell a typing error from a revoked key.
"""

import re
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, bindparam, delete, exists, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import InvalidInput, StateConflict, Unauthorized
from datalens_service.base.fields import copied
from datalens_service.proof.spenders import Actor
from datalens_service.store.access import tenants
from datalens_service.store.access.roles import Role, Scope, check_scopes, stored_role, stored_scopes
from datalens_service.store.access.shown_secrets import PATTERN, PREFIX_LENGTH, digest, draw_secret, matches
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.rows import copy_row, get_or_refuse
from datalens_service.store.schema.service_tables import BrowserSessionRow, TenantRow
from datalens_service.store.schema.tables import DEFAULT_TENANT, PRESENT, ApiKeyRow

SINGLE_SIGN_ON_PREFIX: Final = "sso:"
"""Prefix in rows of people who sign in elsewhere; no key contains a colon, so no key matches such a row."""

_BY_PREFIX = select(ApiKeyRow.__table__, PRESENT.label("read_at")).where(ApiKeyRow.prefix == bindparam("prefix"))
_FORM = re.compile(rf"dlk_({PATTERN})_([0-9a-f]{{8}})")


@dataclass(frozen=True)
class ApiKey:
    """The stored facts about a key.

    Attributes:
        prefix: The first characters behind `dlk_`, to recognise it by.
        made_by: The key with which it was made; None for one that was made on the machine of the service.
        requests_per_minute: Limit of its own; None takes that of the deployment.
        concurrent_requests: The same for requests at once.
    """

    id: str
    name: str
    prefix: str
    tenant_id: str
    role: Role
    scopes: frozenset[Scope]
    made_by: str | None
    requests_per_minute: int | None
    concurrent_requests: int | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @property
    def single_sign_on(self) -> bool:
        """Return True if this is a person known through an OpenID provider, who has browser sessions and no key."""
        return self.prefix.startswith(SINGLE_SIGN_ON_PREFIX)

    def works(self, now: datetime) -> bool:
        """Return True if it was neither revoked nor has expired at the instant `now`."""
        return works(self, now)

    @classmethod
    def from_row(cls, row: ApiKeyRow) -> Self:
        """A copy of the row, without the hash."""
        role = Role.STEWARD if row.is_steward else Role(row.role)
        named = None if row.scopes is None else [Scope(scope) for scope in row.scopes.split()]
        return copy_row(cls, row, role=role, scopes=check_scopes(role, named))


@dataclass(frozen=True)
class KeyRequest:
    """Request for a new key; by default an owner's, for ever."""

    name: str
    tenant_id: str = DEFAULT_TENANT
    role: Role = Role.OWNER
    scopes: Collection[Scope] | None = None
    requests_per_minute: int | None = None
    concurrent_requests: int | None = None
    expires_at: datetime | None = None
    made_by: str | None = None


def create(database: Database, requested: KeyRequest | str) -> tuple[ApiKey, str]:
    """A new key: its record, and the plain text that is never shown again.

    Raises:
        InvalidInput: The role does not hold a scope that is named, or the key would have expired already.
    """
    request = KeyRequest(requested) if isinstance(requested, str) else requested
    check_scopes(request.role, request.scopes)
    with database.transaction() as session:
        return _added(session, request)


def create_first(database: Database, name: str, keep: Callable[[str], None]) -> str | None:
    """An owner's key of the default tenant, in plain text; None where a usable one exists.

    Args:
        keep: Stores the plain text before the key is committed, so that no key exists that nobody knows.
    """
    with database.transaction() as session:
        # Other processes that start now wait for this row.
        session.get(TenantRow, DEFAULT_TENANT, with_for_update=True)
        if session.scalar(select(exists().where(is_usable(read_database_clock(session))))):
            return None
        _, plain = _added(session, KeyRequest(name))
        keep(plain)
        return plain


def rotate(database: Database, key_id: str, overlap: timedelta, made_by: str | None = None) -> tuple[ApiKey, str]:
    """A key like this one, which goes on working for `overlap` and no longer.

    Args:
        made_by: The key whose holder asked for it, and sees it.

    Raises:
        StateConflict: It was revoked or has expired, or belongs to single sign-on.
    """
    with database.transaction() as session:
        old, now = get_or_refuse(session, ApiKeyRow, key_id, "API key"), read_database_clock(session)
        if not works(old, now):
            raise StateConflict("This API key was revoked or has expired; create a new one.")
        like = ApiKey.from_row(old)
        if like.single_sign_on:
            raise StateConflict("This is access by single sign-on, without a key; create a key instead.")
        scopes = None if old.scopes is None else like.scopes
        new = _added(session, copied(KeyRequest, like, scopes=scopes, made_by=made_by))
        old.expires_at = min(now + overlap, old.expires_at or now + overlap)
        return new


def verify(connection: Connection, plain: str) -> ApiKey:
    """The key that `plain` is.

    Raises:
        Unauthorized: Malformed, unknown, expired or revoked; the sentence does not say which of the latter three.
    """
    form = _FORM.fullmatch(plain)
    if form is None or form[2] != _checksum(form[1]):
        raise Unauthorized("This is not an API key; it starts with dlk_ and is copied in full.")
    row: Any = connection.execute(_BY_PREFIX, {"prefix": form[1][:PREFIX_LENGTH]}).one_or_none()
    same = matches(None if row is None else row.sha256, plain)
    if row is None or not same or not works(row, row.read_at):
        raise Unauthorized("This API key is unknown or was revoked, or has expired.")
    return ApiKey.from_row(row)


def revoke(database: Database, key_id: str) -> ApiKey:
    """Make a key useless from now on. Repeatable."""
    with database.transaction() as session:
        row = get_or_refuse(session, ApiKeyRow, key_id, "API key")
        row.revoked_at = row.revoked_at or read_database_clock(session)
        session.execute(delete(BrowserSessionRow).where(BrowserSessionRow.key_id == key_id))
        return ApiKey.from_row(row)


def get(database: Database, key_id: str) -> ApiKey:
    """Return a key, revoked or not."""
    with database.session() as session:
        return ApiKey.from_row(get_or_refuse(session, ApiKeyRow, key_id, "API key"))


def usable(database: Database, key_id: str) -> bool:
    """Return True if the key exists and works now."""
    with database.session() as session:
        row = session.get(ApiKeyRow, key_id)
        return row is not None and works(row, read_database_clock(session))


def list_keys(database: Database, tenant_id: str | None = None) -> tuple[ApiKey, ...]:
    """Keys of a tenant, or of all, oldest first, revoked ones included."""
    query = select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id)
    if tenant_id is not None:
        query = query.where(ApiKeyRow.tenant_id == tenant_id)
    with database.session() as session:
        return tuple(ApiKey.from_row(row) for row in session.scalars(query))


def find_actors(database: Database, ids: Collection[str]) -> dict[str, Actor]:
    """Name keys, persons and commands by their ids; whoever is not known any more has no name."""
    query = select(ApiKeyRow.id, ApiKeyRow.name).where(ApiKeyRow.id.in_(ids))
    with database.session() as session:
        names = {row.id: row.name for row in session.execute(query)}
    return {actor: Actor(id=actor, name=names.get(actor)) for actor in sorted(ids)}


def is_usable(now: datetime) -> ColumnElement[bool]:
    """Condition of rows whose key works at the instant `now`; people who sign in elsewhere have none."""
    unexpired = ApiKeyRow.expires_at.is_(None) | (ApiKeyRow.expires_at > now)
    keyed = ~ApiKeyRow.prefix.startswith(SINGLE_SIGN_ON_PREFIX)
    return ApiKeyRow.revoked_at.is_(None) & unexpired & keyed


def _added(session: Session, requested: KeyRequest) -> tuple[ApiKey, str]:
    tenants.check_open(session, requested.tenant_id)
    if requested.expires_at is not None and requested.expires_at <= read_database_clock(session):
        raise InvalidInput("⟦key.expires_at⟧ lies in the past.")
    body = draw_secret()
    plain = f"dlk_{body}_{_checksum(body)}"
    role, is_steward = stored_role(requested.role)
    row = ApiKeyRow(
        id=f"key_{uuid4().hex}",
        tenant_id=requested.tenant_id,
        name=requested.name,
        prefix=body[:PREFIX_LENGTH],
        sha256=digest(plain),
        role=role,
        is_steward=is_steward,
        made_by=requested.made_by,
        scopes=stored_scopes(requested.role, requested.scopes),
        requests_per_minute=requested.requests_per_minute,
        concurrent_requests=requested.concurrent_requests,
        expires_at=requested.expires_at,
    )
    session.add(row)
    session.flush()
    return ApiKey.from_row(row), plain


def works(row: ApiKeyRow | ApiKey, now: datetime) -> bool:
    """Return True if a key was neither revoked nor has expired at the instant `now`."""
    return row.revoked_at is None and (row.expires_at is None or now < row.expires_at)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
