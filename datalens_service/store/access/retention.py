"""Retention: for how many days things are kept, everywhere and in a tenant; the shorter time of the two counts.

Budgets, charges, fingerprints and proofs of accounts are not among them: the guarantee needs them for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.base.errors import InvalidInput
from datalens_service.base.fields import copied
from datalens_service.store.access import access_log
from datalens_service.store.database import Database
from datalens_service.store.rows import get_or_refuse
from datalens_service.store.schema.service_tables import RetentionRow, TenantRow
from datalens_service.store.schema.tables import DEFAULT_TENANT

EVERYWHERE: Final = ""
"""Stands for the installation where a tenant is named."""
SHORTEST_JOURNAL: Final = 30
"""Days: nobody removes the traces of what was done yesterday by a policy."""
LONGEST: Final = 36_500


@dataclass(frozen=True)
class Retention:
    """Days for which things are kept; None is for ever.

    Attributes:
        datasets: Data sets with their records, from their upload on.
        results: Files of jobs and findings of audits, from their end on; imported generators, from their import on.
        uploads: Reports on uploads that could not be used, from their check on.
        events: Events of jobs that have ended, but the last one.
        deliveries: Messages to webhooks that were delivered or given up.
        journal: Entries of the audit journal.
    """

    datasets: int | None = None
    results: int | None = None
    uploads: int | None = None
    events: int | None = None
    deliveries: int | None = None
    journal: int | None = None

    def narrowed(self, other: Retention) -> Retention:
        """Return the shorter time of both for each kind of thing."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Retention(*(min((days for days in pair if days is not None), default=None) for pair in pairs))


FOR_EVER: Final = Retention()


def read(session: Session, tenant_id: str = EVERYWHERE) -> Retention:
    """Return the policy of a tenant, or that of the installation."""
    row = session.get(RetentionRow, tenant_id)
    return FOR_EVER if row is None else copied(Retention, row)


def read_effective(session: Session, tenant_id: str) -> Retention:
    return read(session).narrowed(read(session, tenant_id))


def list_effective(session: Session) -> dict[str, Retention]:
    """Return what counts for each tenant in which anything is removed for its age, by its id."""
    everywhere = read(session)
    tenants = session.scalars(select(TenantRow.id).order_by(TenantRow.created_at, TenantRow.id)).all()
    effective = {tenant_id: everywhere.narrowed(read(session, tenant_id)) for tenant_id in tenants}
    return {tenant_id: policy for tenant_id, policy in effective.items() if policy != FOR_EVER}


def change(database: Database, tenant_id: str, policy: Retention, *, actor: str) -> None:
    """Replace a policy and note it in the journal of its tenant, or of the first one for that of the installation.

    Raises:
        InvalidInput: A time is too short.
        NotFound: There is no such tenant.
    """
    if policy.journal is not None and policy.journal < SHORTEST_JOURNAL:
        raise InvalidInput(f"The audit journal is kept for {SHORTEST_JOURNAL} days at least.")
    with database.transaction() as session:
        noted_by = DEFAULT_TENANT if tenant_id == EVERYWHERE else tenant_id
        get_or_refuse(session, TenantRow, noted_by, "tenant")
        session.merge(RetentionRow(tenant_id=tenant_id, **vars(policy)))
        said = ", ".join(f"{name} {days} days" for name, days in vars(policy).items() if days is not None)
        where = "everywhere: " if tenant_id == EVERYWHERE else ""
        detail = where + (said or "for ever")
        access_log.append(session, noted_by, actor=actor, action="setRetention", object_id=noted_by, detail=detail)
