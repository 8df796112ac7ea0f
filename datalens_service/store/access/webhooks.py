"""Webhooks: whom to tell of what, and every message as a row that outlives any process.

A message is written in the transaction of the event that it tells of, so none is lost and none tells of what did not
happen. It is thin: a type, an instant and ids; whoever gets it reads the rest with a key.
`adapters/webhook_sender.py` sends.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final
from uuid import uuid4

from sqlalchemy import ColumnElement, exists, or_, select, update
from sqlalchemy.orm import Session

from datalens_service.base.audience import Public, public_fields
from datalens_service.base.clock import to_second
from datalens_service.base.errors import NotFound
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_clock, read_database_clock
from datalens_service.store.paging import StoredPage, list_page
from datalens_service.store.rows import copy_row, get_or_refuse
from datalens_service.store.schema.service_tables import DeliveryRow, WebhookRow
from datalens_service.store.schema.tables import JobRow

TEST_EVENT: Final = "webhook.test"
BACK_OFF_SECONDS: Final = (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
"""Pauses after each failed attempt; after the last one the message is given up."""

_SECRET_BYTES: Final = 32
_CLAIM_SECONDS: Final = 60
_OF_A_TENANT: Final = 8
"""Messages of a tenant that a process sends at once, however many of its receivers are silent."""

_LOOKED_THROUGH: Final = 200


@dataclass(frozen=True)
class Webhook:
    """A webhook as it was when it was read."""

    id: str
    tenant_id: str
    url: str
    events: tuple[str, ...]
    enabled: bool
    created_at: datetime

    @classmethod
    def from_row(cls, row: WebhookRow) -> Webhook:
        """A copy of the row, without the secret."""
        return copy_row(cls, row, events=tuple(row.events.split()))


@dataclass(frozen=True)
class Delivery:
    """A message as it was when it was read."""

    id: str
    webhook_id: str
    event: str
    payload: str
    state: str
    attempts: int
    next_attempt_at: datetime
    status: int | None
    error: str | None
    created_at: datetime
    delivered_at: datetime | None

    @classmethod
    def from_row(cls, row: DeliveryRow) -> Delivery:
        return copy_row(cls, row)


@dataclass(frozen=True)
class JobNews:
    """A message about a job."""

    job_id: Public[str]
    dataset_id: Public[str]
    state: Public[str]


@dataclass(frozen=True)
class _Test:
    """A message that only has to arrive."""

    webhook_id: Public[str]


@dataclass(frozen=True)
class Claimed:
    """A message that this process may send now, with what that takes; `at` is when, by the clock of the database."""

    delivery: Delivery
    tenant_id: str
    url: str
    secret: str
    at: datetime


def create(database: Database, tenant_id: str, url: str, events: Collection[str]) -> tuple[Webhook, str]:
    """A new webhook: its record, and the secret that is never shown again."""
    secret = _new_secret()
    row = WebhookRow(
        id=f"wh_{uuid4().hex}",
        tenant_id=tenant_id,
        url=url,
        secret=secret,
        events=" ".join(sorted(events)),
        enabled=True,
    )
    with database.transaction() as session:
        session.add(row)
        session.flush()
        return Webhook.from_row(row), secret


def get(database: Database, webhook_id: str) -> Webhook:
    with database.session() as session:
        return Webhook.from_row(_row(session, webhook_id))


def list_webhooks(database: Database, tenant_id: str) -> tuple[Webhook, ...]:
    """Return all webhooks of a tenant, oldest first."""
    query = select(WebhookRow).where(WebhookRow.tenant_id == tenant_id)
    with database.session() as session:
        rows = session.scalars(query.order_by(WebhookRow.created_at, WebhookRow.id))
        return tuple(Webhook.from_row(row) for row in rows)


def change(
    database: Database,
    webhook_id: str,
    *,
    url: str | None = None,
    events: Collection[str] | None = None,
    enabled: bool | None = None,
) -> Webhook:
    """Change what is named of a webhook."""
    with database.transaction() as session:
        row = _row(session, webhook_id)
        row.url = url if url is not None else row.url
        row.events = " ".join(sorted(events)) if events is not None else row.events
        row.enabled = enabled if enabled is not None else row.enabled
        session.flush()
        return Webhook.from_row(row)


def rotate_secret(database: Database, webhook_id: str) -> tuple[Webhook, str]:
    """A new secret, which signs every message from now on, also pending ones."""
    with database.transaction() as session:
        row = _row(session, webhook_id)
        row.secret = _new_secret()
        session.flush()
        return Webhook.from_row(row), row.secret


def delete(database: Database, webhook_id: str) -> None:
    """Remove a webhook with its messages."""
    with database.transaction() as session:
        session.delete(_row(session, webhook_id))


def tell(session: Session, job: JobRow, event: str, at: datetime) -> None:
    """Write a message to every webhook that wants `event`, in the transaction of the event."""
    query = select(WebhookRow).where(WebhookRow.tenant_id == job.tenant_id, WebhookRow.enabled)
    for row in session.scalars(query).all():
        if event in row.events.split():
            session.add(_message(row, event, JobNews(job.id, job.dataset_id, str(job.state)), at))
    session.flush()


def send_test(database: Database, webhook_id: str) -> Delivery:
    """Write a message that tells of nothing, to see whether it arrives."""
    with database.transaction() as session:
        row = _message(_row(session, webhook_id), TEST_EVENT, _Test(webhook_id), read_database_clock(session))
        session.add(row)
        session.flush()
        return Delivery.from_row(row)


def redeliver(database: Database, webhook_id: str, delivery_id: str) -> Delivery:
    """Send a message once more, under the same id, whatever became of it."""
    with database.transaction() as session:
        row = session.get(DeliveryRow, delivery_id)
        if row is None or row.webhook_id != webhook_id:
            raise NotFound("There is no such delivery.")
        row.state, row.attempts, row.next_attempt_at = "pending", 0, read_database_clock(session)
        session.flush()
        return Delivery.from_row(row)


def list_deliveries(
    database: Database, webhook_id: str, *, limit: int = 50, cursor: str | None = None
) -> StoredPage[Delivery]:
    """Messages to a webhook, newest first."""
    query = select(DeliveryRow.__table__).where(DeliveryRow.webhook_id == webhook_id)
    with database.connection() as connection:
        return list_page(connection, query, (DeliveryRow.created_at, DeliveryRow.id), Delivery.from_row, limit, cursor)


def claim_due(
    database: Database, limit: int = 20, *, busy: Mapping[str, str] = MappingProxyType({}), now: datetime | None = None
) -> tuple[Claimed, ...]:
    """Claim messages whose time has come: one of each receiver, and few of a tenant, so that none waits for another.

    For a minute no other process gets them. Those to a webhook that was switched off since wait until it is on again,
    but for tests, which somebody asks for.

    Args:
        busy: Webhooks that get a message just now, which get no other meanwhile, and their tenants.
    """
    wanted = exists().where(WebhookRow.id == DeliveryRow.webhook_id, WebhookRow.enabled)
    now = now or read_clock(database)
    due = (
        DeliveryRow.state == "pending",
        DeliveryRow.next_attempt_at <= now,
        or_(DeliveryRow.event == TEST_EVENT, wanted),
    )
    ids = _choose(database, due, busy, limit)
    if not ids:
        return ()
    later = now + timedelta(seconds=_CLAIM_SECONDS)
    with database.transaction() as session:
        # Another process may have been faster: the condition is asked again under the row's lock.
        taking = update(DeliveryRow).where(DeliveryRow.id.in_(ids), *due).values(next_attempt_at=later)
        taken = session.scalars(taking.returning(DeliveryRow.id)).all()
        both = select(DeliveryRow, WebhookRow).join(WebhookRow, WebhookRow.id == DeliveryRow.webhook_id)
        rows = session.execute(both.where(DeliveryRow.id.in_(taken))).all()
        return tuple(
            Claimed(Delivery.from_row(message), hook.tenant_id, hook.url, hook.secret, now) for message, hook in rows
        )


def _choose(database: Database, due: tuple[ColumnElement[bool], ...], busy: Mapping[str, str], limit: int) -> list[str]:
    """Return the ids of the next messages; what many of one receiver hide is found once that receiver is busy."""
    tenants = Counter(busy.values())
    full = [tenant for tenant, count in tenants.items() if count >= _OF_A_TENANT]
    query = select(DeliveryRow.id, DeliveryRow.webhook_id, DeliveryRow.tenant_id).where(*due)
    if busy:
        query = query.where(DeliveryRow.webhook_id.not_in(busy), DeliveryRow.tenant_id.not_in(full))
    with database.session() as session:
        found = session.execute(query.order_by(DeliveryRow.next_attempt_at).limit(_LOOKED_THROUGH)).all()
    chosen: dict[str, str] = {}
    for message in found:
        if len(chosen) < limit and message.webhook_id not in chosen and tenants[message.tenant_id] < _OF_A_TENANT:
            chosen[message.webhook_id] = message.id
            tenants[message.tenant_id] += 1
    return list(chosen.values())


def settle(
    database: Database, delivery_id: str, *, status: int | None, error: str | None, now: datetime | None = None
) -> None:
    """Note what became of an attempt; one that failed is repeated later, until the pauses are used up."""
    with database.transaction() as session:
        now = now or read_database_clock(session)
        row = session.get(DeliveryRow, delivery_id)
        if row is None:
            return
        row.status, row.error = status, error
        row.attempts += 1
        if status is not None and 200 <= status < 300:
            row.state, row.delivered_at = "delivered", now
        elif row.attempts > len(BACK_OFF_SECONDS):
            row.state = "failed"
        else:
            row.next_attempt_at = now + timedelta(seconds=BACK_OFF_SECONDS[row.attempts - 1])


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def _row(session: Session, webhook_id: str) -> WebhookRow:
    return get_or_refuse(session, WebhookRow, webhook_id, "webhook")


def _message(hook: WebhookRow, event: str, news: JobNews | _Test, at: datetime) -> DeliveryRow:
    sent_at = to_second(at).isoformat().replace("+00:00", "Z")
    payload = {"type": event, "timestamp": sent_at, "data": public_fields(news)}
    return DeliveryRow(
        id=f"msg_{uuid4().hex}",
        tenant_id=hook.tenant_id,
        webhook_id=hook.id,
        event=event,
        payload=json.dumps(payload, separators=(",", ":")),
        state="pending",
        attempts=0,
        next_attempt_at=at,
    )
