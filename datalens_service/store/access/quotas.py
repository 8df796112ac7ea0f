"""Quotas of a tenant: what it may have at once, decided in the transaction that adds to it.

Whoever adds holds the row of the quotas meanwhile, so that two who add at once do not overlook each other. A tenant
without a row, or without a number in it, has the limit of the settings, if they have one.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import QuotaExceeded
from datalens_service.base.fields import copied
from datalens_service.store.access import access_log
from datalens_service.store.database import DEFAULT_QUOTAS, Database
from datalens_service.store.rows import get_or_refuse
from datalens_service.store.schema.service_tables import TenantQuotaRow, TenantRow
from datalens_service.store.schema.tables import ApiKeyRow, DatasetRow, IntakeRow, JobRow, UploadRow

_REQUESTS = select(TenantQuotaRow.requests_per_minute).where(TenantQuotaRow.tenant_id == bindparam("tenant_id"))
_UNCONFIRMED = ("validating", "review")


@dataclass(frozen=True)
class Quotas:
    """Limits of a tenant; None is no limit, or the default.

    Attributes:
        bytes: Bytes of records on the disk of the data folder, and of uploads that were announced.
        datasets: Data sets that are not deleted, and uploads that are checked or reviewed.
        jobs: Jobs and audits that have not ended.
        requests_per_minute: Requests of all keys and browsers together.
    """

    bytes: int | None = None
    datasets: int | None = None
    jobs: int | None = None
    requests_per_minute: int | None = None


def read(database: Database, tenant_id: str) -> Quotas:
    """Return the quotas that count for a tenant: its own, and the default where it has none."""
    return _fill(read_own(database, tenant_id), database.default_quotas)


def read_own(database: Database, tenant_id: str) -> Quotas:
    """Return the quotas that were set for a tenant; None takes the default."""
    with database.session() as session:
        row = session.get(TenantQuotaRow, tenant_id)
        return Quotas() if row is None else copied(Quotas, row)


def read_requests_per_minute(connection: Connection, tenant_id: str, default: int | None) -> int | None:
    """Return the one quota that every request asks for."""
    own = connection.scalar(_REQUESTS, {"tenant_id": tenant_id})
    return default if own is None else own


def change(database: Database, tenant_id: str, quotas: Quotas, *, actor: str) -> None:
    """Replace the quotas of a tenant and note it in its journal; what it has already stays."""
    with database.transaction() as session:
        get_or_refuse(session, TenantRow, tenant_id, "tenant")
        session.merge(TenantQuotaRow(tenant_id=tenant_id, **vars(quotas)))
        said = ", ".join(f"{name} {value}" for name, value in vars(quotas).items() if value is not None)
        detail = said or "none"
        access_log.append(session, tenant_id, actor=actor, action="setQuotas", object_id=tenant_id, detail=detail)


def find_tenant(session: Session, key_id: str) -> str:
    """Return the tenant of a key; an empty id, which has no quotas, where there is no such key."""
    return session.scalar(select(ApiKeyRow.tenant_id).where(ApiKeyRow.id == key_id)) or ""


def check_jobs(session: Session, tenant_id: str) -> None:
    """Refuse a further job or audit of a tenant that has as many as it may.

    Raises:
        QuotaExceeded: It has.
    """
    quotas = _lock(session, tenant_id)
    if quotas.jobs is not None:
        query = select(func.count()).where(JobRow.tenant_id == tenant_id, JobRow.finished_at.is_(None))
        _refuse_above("jobs", "jobs at once", quotas.jobs, (session.scalar(query) or 0) + 1)


def check_datasets(session: Session, tenant_id: str, dataset_id: str) -> None:
    """Refuse a further data set of a tenant that has as many as it may; a row of it may be there already.

    Raises:
        QuotaExceeded: It has.
    """
    quotas = _lock(session, tenant_id)
    if quotas.datasets is not None:
        wanted = _list_datasets(session, tenant_id) | {dataset_id}
        _refuse_above("datasets", "data sets", quotas.datasets, len(wanted))


def check_bytes(session: Session, tenant_id: str, measure: Callable[[Collection[str]], int], more: int = 0) -> None:
    """Refuse bytes beyond what a tenant may have.

    Args:
        measure: Returns the bytes of records of data sets, by their ids.
        more: Bytes that would be added.

    Raises:
        QuotaExceeded: They are beyond.
    """
    quotas = _lock(session, tenant_id)
    if quotas.bytes is not None:
        announced = select(func.sum(UploadRow.length)).join(ApiKeyRow, ApiKeyRow.id == UploadRow.key_id)
        uploads = session.scalar(announced.where(ApiKeyRow.tenant_id == tenant_id)) or 0
        stored = measure(_list_datasets(session, tenant_id))
        _refuse_above("bytes", "bytes", quotas.bytes, int(uploads) + stored + more)


def _lock(session: Session, tenant_id: str) -> Quotas:
    row = session.get(TenantQuotaRow, tenant_id, with_for_update=True)
    defaults: Mapping[str, int | None] = session.info.get(DEFAULT_QUOTAS, {})
    if row is None and any(limit is not None for limit in defaults.values()):
        # There is no row to hold: that of the tenant stands for it, which others may refer to meanwhile.
        session.get(TenantRow, tenant_id, with_for_update={"key_share": True})
    return _fill(Quotas() if row is None else copied(Quotas, row), defaults)


def _fill(own: Quotas, defaults: Mapping[str, int | None]) -> Quotas:
    return Quotas(**{name: defaults.get(name) if limit is None else limit for name, limit in vars(own).items()})


def _list_datasets(session: Session, tenant_id: str) -> frozenset[str]:
    """List data sets that are not deleted, and uploads that may become some."""
    ready = select(DatasetRow.id).where(DatasetRow.tenant_id == tenant_id, DatasetRow.state == "ready")
    of_keys = select(IntakeRow.dataset_id).join(ApiKeyRow, ApiKeyRow.id == IntakeRow.key_id)
    waiting = of_keys.where(ApiKeyRow.tenant_id == tenant_id, IntakeRow.state.in_(_UNCONFIRMED))
    return frozenset(session.scalars(ready)) | frozenset(session.scalars(waiting))


def _refuse_above(name: str, words: str, limit: int, wanted: int) -> None:
    if wanted > limit:
        raise QuotaExceeded(
            f"Your tenant may have {limit:,} {words}, and this would be more: delete some, wait for jobs to end, or "
            "ask the operator.",
            extra={"quota": name, "limit": limit},
        )
