"""The audit journal of a tenant: who did what to which object and what came of it, sealed entry onto entry.

    hash = SHA-256(canonical JSON of all other fields, which include the previous hash)

Triggers refuse to change entries, and to delete any but the oldest (`shorten`). Whoever notes a head (`seq`, `hash`)
can tell later whether the journal was rewritten. No content enters it: ids, names of operations, statuses, and what the
owner wrote as a reason.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from datalens_service.base.clock import to_second
from datalens_service.base.errors import LedgerCorrupt
from datalens_service.base.fields import copied
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.paging import check_limit
from datalens_service.store.rows import get_or_refuse
from datalens_service.store.schema.service_tables import AuditEntryRow, TenantRow
from datalens_service.store.schema.tables import ApiKeyRow

LOCAL: Final = "local"
"""The actor of commands on the machine of the database."""


@dataclass(frozen=True)
class AuditEntry:
    """One line of the journal.

    Attributes:
        seq: Number within it, from 1, without gaps.
        actor: Id of the API key, or `LOCAL`.
        object_id: Id of the object that was changed or created, if it has one.
        detail: The reason that was given, or what was made of the object; may be empty.
        hash: Hash of everything else.
    """

    tenant_id: str
    seq: int
    at: datetime
    actor: str
    action: str
    object_id: str | None
    outcome: int
    detail: str
    previous_hash: str
    hash: str = ""

    @classmethod
    def from_row(cls, row: AuditEntryRow) -> Self:
        return copied(cls, row)

    def computed_hash(self) -> str:
        """Hash that the other fields call for."""
        fields = dict(vars(self))
        del fields["hash"]
        fields["at"] = self.at.astimezone(UTC).isoformat(timespec="microseconds")
        return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def append(
    session: Session,
    tenant_id: str,
    *,
    actor: str,
    action: str,
    object_id: str | None = None,
    outcome: int = 200,
    detail: str = "",
) -> None:
    """Seal one entry onto the journal of a tenant, in the caller's transaction."""
    head = get_or_refuse(session, TenantRow, tenant_id, "tenant", lock=True)
    draft = AuditEntry(
        tenant_id=tenant_id,
        seq=head.audit_seq + 1,
        at=to_second(read_database_clock(session)),
        actor=actor,
        action=action,
        object_id=object_id,
        outcome=outcome,
        detail=detail,
        previous_hash=head.audit_hash,
    )
    head.audit_seq, head.audit_hash = draft.seq, draft.computed_hash()
    session.add(AuditEntryRow(**{**vars(draft), "hash": head.audit_hash}))
    session.flush()


def note(
    database: Database,
    tenant_id: str,
    *,
    actor: str,
    action: str,
    object_id: str | None,
    outcome: int = 200,
    detail: str = "",
) -> None:
    """Add an entry in a transaction of its own; durable when it returns, not there if it raises."""
    with database.transaction() as session:
        append(session, tenant_id, actor=actor, action=action, object_id=object_id, outcome=outcome, detail=detail)


@dataclass(frozen=True)
class EntryFilter:
    """Entries that are asked for; what is None is not looked at.

    Attributes:
        actor: Id of a key or person, or the name that one or several have now.
        object_id: Id of the object that was changed or created.
        outcome: An HTTP status, or `2xx` to `5xx` for all of a kind.
        since: Time of the first entry.
        until: Time before which the last entry is.
    """

    actor: str | None = None
    object_id: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self, tenant_id: str) -> list[ColumnElement[bool]]:
        found = [AuditEntryRow.tenant_id == tenant_id]
        if self.actor is not None:
            namesakes = select(ApiKeyRow.id).where(ApiKeyRow.tenant_id == tenant_id, ApiKeyRow.name == self.actor)
            found.append((AuditEntryRow.actor == self.actor) | AuditEntryRow.actor.in_(namesakes))
        if self.object_id is not None:
            found.append(AuditEntryRow.object_id == self.object_id)
        if self.outcome is not None:
            least, most = (int(self.outcome.replace("x", digit)) for digit in "09")
            found.append(AuditEntryRow.outcome.between(least, most))
        if self.since is not None:
            found.append(AuditEntryRow.at >= self.since)
        if self.until is not None:
            found.append(AuditEntryRow.at < self.until)
        return found


_ALL: Final = EntryFilter()


def list_entries(
    database: Database, tenant_id: str, which: EntryFilter = _ALL, *, after: int = 0, limit: int = 100
) -> tuple[tuple[AuditEntry, ...], str]:
    """Entries with a number above `after`, oldest first, and the hash of the journal's head."""
    query = select(AuditEntryRow).where(*which.conditions(tenant_id), AuditEntryRow.seq > after)
    with database.session() as session:
        rows = session.scalars(query.order_by(AuditEntryRow.seq).limit(check_limit(limit))).all()
        return tuple(AuditEntry.from_row(row) for row in rows), session.get_one(TenantRow, tenant_id).audit_hash


def list_latest(
    database: Database, tenant_id: str, which: EntryFilter = _ALL, *, before: int | None = None, limit: int = 100
) -> tuple[tuple[AuditEntry, ...], str]:
    """Entries with a number below `before`, newest first, and the hash of the journal's head."""
    query = select(AuditEntryRow).where(*which.conditions(tenant_id))
    if before is not None:
        query = query.where(AuditEntryRow.seq < before)
    with database.session() as session:
        rows = session.scalars(query.order_by(AuditEntryRow.seq.desc()).limit(check_limit(limit))).all()
        return tuple(AuditEntry.from_row(row) for row in rows), session.get_one(TenantRow, tenant_id).audit_hash


def find_last_access(database: Database, tenant_id: str) -> dict[str, datetime]:
    """Find when each key of a tenant was last noted in its journal, by the id of the key."""
    noted = (AuditEntryRow.tenant_id == tenant_id, AuditEntryRow.actor == ApiKeyRow.id)
    last = select(func.max(AuditEntryRow.at)).where(*noted).scalar_subquery()
    query = select(ApiKeyRow.id, last).where(ApiKeyRow.tenant_id == tenant_id)
    with database.session() as session:
        return {key_id: to_second(at) for key_id, at in session.execute(query) if at is not None}


class JournalHead(NamedTuple):
    """The last entry of a journal; whoever notes it can tell later that the journal was not rewritten."""

    seq: int
    hash: str


def verify(database: Database, tenant_id: str) -> JournalHead:
    """Check the whole journal of a tenant; its head.

    Raises:
        LedgerCorrupt: Names the first entry that is missing, was altered or is out of place.
    """
    query = select(AuditEntryRow).where(AuditEntryRow.tenant_id == tenant_id).order_by(AuditEntryRow.seq)
    with database.session() as session:
        head = get_or_refuse(session, TenantRow, tenant_id, "tenant")
        seq, previous = head.audit_base_seq, head.audit_base_hash
        for row in session.scalars(query.execution_options(yield_per=1000)):
            entry = AuditEntry.from_row(row)
            seq += 1
            if (entry.seq, entry.previous_hash, entry.hash) != (seq, previous, entry.computed_hash()):
                raise _broken(seq)
            previous = entry.hash
        if (head.audit_seq, head.audit_hash) != (seq, previous):
            raise _broken(seq + 1)
        return JournalHead(seq, previous)


def shorten(session: Session, tenant_id: str, before: datetime) -> int:
    """Remove the entries of a journal from before an instant, and return how many.

    The journal begins behind them then, at a number and a hash that its tenant keeps: what is left can be verified, and
    nobody can take entries out of its midst.
    """
    head = get_or_refuse(session, TenantRow, tenant_id, "tenant", lock=True)
    older = (AuditEntryRow.tenant_id == tenant_id, AuditEntryRow.at < before)
    last = session.scalars(select(AuditEntryRow).where(*older).order_by(AuditEntryRow.seq.desc()).limit(1)).first()
    if last is None:
        return 0
    head.audit_base_seq, head.audit_base_hash = last.seq, last.hash
    session.flush()
    gone = delete(AuditEntryRow).where(AuditEntryRow.tenant_id == tenant_id, AuditEntryRow.seq <= last.seq)
    return session.execute(gone).rowcount  # type: ignore[attr-defined,no-any-return]


def _broken(seq: int) -> LedgerCorrupt:
    return LedgerCorrupt(f"Entry {seq} of the audit journal is missing, was altered or is out of place.")
