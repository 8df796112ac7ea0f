"""Tenants: groups of users of one service, none of which sees another.

Every data set, job, key, generator and webhook belongs to one.

Whether an object may be touched is decided in one place, `check_owned`: an object of another tenant does not exist.
Accounts are per tenant as well, because fingerprints are keyed by tenant (docs/decisions/0006-accounts-per-tenant.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self
from uuid import uuid4

from sqlalchemy import BindParameter, Connection, Select, bindparam, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from datalens_service.base.errors import NotFound, StateConflict
from datalens_service.proof.hash_chain import GENESIS
from datalens_service.store.access import access_log
from datalens_service.store.database import Database
from datalens_service.store.rows import copy_row, get_or_refuse
from datalens_service.store.schema.service_tables import (
    DeliveryRow,
    ReleasedModelRow,
    ReleaseLinkRow,
    TenantRow,
    WebhookRow,
)
from datalens_service.store.schema.tables import ApiKeyRow, DatasetRow, IntakeRow, JobRow, UploadRow

_IDENTIFIER: Final[BindParameter[str]] = bindparam("identifier")


def _by_row(row: type[Any]) -> Select[str]:
    return select(row.tenant_id).where(row.id == _IDENTIFIER)


def _by_key(row: type[Any], column: Any) -> Select[str]:
    """Select rows that know the key they came with."""
    return select(ApiKeyRow.tenant_id).join(row, row.key_id == ApiKeyRow.id).where(column == _IDENTIFIER)


OWNED: Final[Mapping[str, tuple[tuple[Select[str], ...], str]]] = {
    # An upload is in this table alone before it has a row of its own.
    "dataset_id": ((_by_row(DatasetRow), _by_key(IntakeRow, IntakeRow.dataset_id)), "There is no such data set."),
    "upload_id": ((_by_key(UploadRow, UploadRow.id),), "There is no such upload."),
    "job_id": ((_by_row(JobRow).where(~JobRow.is_audit),), "There is no such job."),
    "audit_id": ((_by_row(JobRow).where(JobRow.is_audit),), "There is no such audit."),
    "key_id": ((_by_row(ApiKeyRow),), "There is no such API key."),
    "generator_id": ((_by_row(ReleasedModelRow),), "There is no such generator."),
    "classifier_id": ((_by_row(ReleasedModelRow),), "There is no such classifier."),
    "release_id": ((_by_row(ReleasedModelRow),), "There is no such release."),
    "link_id": ((_by_row(ReleaseLinkRow),), "There is no such link."),
    "webhook_id": ((_by_row(WebhookRow),), "There is no such webhook."),
    "delivery_id": ((_by_row(DeliveryRow),), "There is no such delivery."),
    # Operations that name one are for the tenant that runs the service (`permissions.py`).
    "tenant_id": ((select(TenantRow.id).where(TenantRow.id == _IDENTIFIER),), "There is no such tenant."),
}
"""Statements that find the tenant of an object, and the error without one, by the parameter of the path."""


@dataclass(frozen=True)
class Tenant:
    """A tenant as it was when it was read.

    Attributes:
        removing_since: None unless somebody asked for its removal.
        removed_at: None unless nothing but its budgets is left.
        receipt: Signed, once it was removed.
    """

    id: str
    name: str
    created_at: datetime
    removing_since: datetime | None
    removed_at: datetime | None
    receipt: dict[str, Any] | None

    @classmethod
    def from_row(cls, row: TenantRow) -> Self:
        return copy_row(cls, row)


def create(database: Database, name: str) -> Tenant:
    """A new tenant without keys; one of this name that was removed comes back with the budgets it had.

    Raises:
        StateConflict: There is one of this name.
    """
    if (returned := _reopen(database, name)) is not None:
        return returned
    row = TenantRow(id=f"ten_{uuid4().hex}", name=name, audit_seq=0, audit_hash=GENESIS)
    try:
        with database.transaction() as session:
            session.add(row)
            session.flush()
            return Tenant.from_row(row)
    except IntegrityError as error:
        raise StateConflict("There is a tenant of this name already.") from error


def _reopen(database: Database, name: str) -> Tenant | None:
    with database.transaction() as session:
        removed = select(TenantRow).where(TenantRow.name == name, TenantRow.removed_at.is_not(None))
        row = session.scalars(removed.with_for_update()).one_or_none()
        if row is None:
            return None
        row.removing_since = row.removed_at = None
        access_log.append(session, row.id, actor=access_log.LOCAL, action="reopenTenant", object_id=row.id)
        return Tenant.from_row(row)


def check_open(session: Session, tenant_id: str) -> None:
    """Refuse a tenant that is being removed, or was; hold its row, so that it is not until the transaction ends.

    Raises:
        StateConflict: It is.
    """
    row = get_or_refuse(session, TenantRow, tenant_id, "tenant", lock=True)
    if row.removing_since is not None:
        raise StateConflict("The tenant was removed, or is being removed: nobody gets access to it.")


def list_tenants(database: Database) -> tuple[Tenant, ...]:
    """Return all tenants, oldest first."""
    with database.session() as session:
        return tuple(Tenant.from_row(row) for row in session.scalars(select(TenantRow).order_by(TenantRow.created_at)))


def get(database: Database, tenant_id: str) -> Tenant:
    with database.session() as session:
        return Tenant.from_row(get_or_refuse(session, TenantRow, tenant_id, "tenant"))


def find(database: Database, name: str) -> Tenant:
    query = select(TenantRow).where((TenantRow.name == name) | (TenantRow.id == name))
    with database.session() as session:
        row = session.scalars(query).first()
        if row is None:
            raise NotFound("There is no such tenant; `datalens tenants list` shows them.")
        return Tenant.from_row(row)


def check_owned(connection: Connection, tenant_id: str, ids: Mapping[str, str]) -> None:
    """Refuse objects of other tenants exactly as if they did not exist.

    Args:
        ids: By the names in `OWNED`; other names are not looked at.

    Raises:
        NotFound: One of them does not exist, or belongs to another tenant.
    """
    for name, identifier in ids.items():
        if name not in OWNED:
            continue
        queries, sentence = OWNED[name]
        owners = (connection.scalar(query, {"identifier": identifier}) for query in queries)
        if next((owner for owner in owners if owner is not None), None) != tenant_id:
            raise NotFound(sentence)
