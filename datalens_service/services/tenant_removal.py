"""Removal of a tenant: access ends at once, then everything leaves but its budgets, then there is a receipt.

    begin     one transaction ends all keys and sessions; nothing of the tenant works from then on
    proceed   jobs are cancelled, and things leave as those that are too old do (`removal.py`), until none is left
    finish    one transaction removes the last rows, blanks the names of those that stay, and signs the receipt

Whoever is killed in between leaves a tenant that is being removed; the next turn of the service, or the next command,
goes on.
"""

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, delete, func, select, update
from sqlalchemy.orm import Session

from datalens_service.base.clock import to_second
from datalens_service.base.errors import StateConflict
from datalens_service.base.settings import Settings
from datalens_service.base.source_commit import source_commit
from datalens_service.proof.job_proof import Head
from datalens_service.proof.removal_receipt import KeptAccount, Remainder, RemovalReceipt, Removed
from datalens_service.report.document import Product
from datalens_service.services import removal, removed_files
from datalens_service.store.access import access_log
from datalens_service.store.access.retention import Retention
from datalens_service.store.access.tenants import Tenant
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.datasets import upload_sessions
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.datasets import OPEN
from datalens_service.store.installation import signing_key
from datalens_service.store.jobs import jobs
from datalens_service.store.removals import RemovalKind, note
from datalens_service.store.rows import get_or_refuse
from datalens_service.store.schema.service_tables import (
    BrowserSessionRow,
    DeliveryRow,
    JobEventRow,
    ReleasedImageRow,
    ReleasedModelRow,
    ReleaseLinkRow,
    RetentionRow,
    TenantQuotaRow,
    TenantRow,
    WebhookRow,
)
from datalens_service.store.schema.tables import (
    DEFAULT_TENANT,
    AccountRow,
    AggregateRow,
    ApiKeyRow,
    ArtifactRow,
    DatasetRow,
    IntakeRow,
    JobRow,
    ReleasedIteratesRow,
    ReleasedStateRow,
    UploadRow,
)

_AT_ONCE: Final = Retention(datasets=0, results=0, uploads=0)
_LEAVES: Final = "the tenant leaves"


def begin(database: Database, tenant_id: str, *, actor: str) -> None:
    """End all access to a tenant, and note what there is to be removed. Repeatable.

    Raises:
        StateConflict: It is the first tenant, which runs the service.
    """
    if tenant_id == DEFAULT_TENANT:
        raise StateConflict("The first tenant runs the service and cannot be removed.")
    with database.transaction() as session:
        row = get_or_refuse(session, TenantRow, tenant_id, "tenant", lock=True)
        if row.removing_since is not None:
            return
        row.removing_since = read_database_clock(session)
        row.receipt = take_stock(session, tenant_id).model_dump(mode="json")
        own = ApiKeyRow.tenant_id == tenant_id
        session.execute(update(ApiKeyRow).where(own).values(revoked_at=row.removing_since))
        of_keys = BrowserSessionRow.key_id.in_(select(ApiKeyRow.id).where(own))
        session.execute(delete(BrowserSessionRow).where(of_keys))
        session.execute(update(WebhookRow).where(WebhookRow.tenant_id == tenant_id).values(enabled=False))
        for noted_by in (DEFAULT_TENANT, tenant_id):
            access_log.append(
                session, noted_by, actor=actor, action="removeTenant", object_id=tenant_id, detail="begun"
            )


def take_stock(session: Session, tenant_id: str) -> Removed:
    """Count and name what leaves with a tenant."""
    own_keys = select(ApiKeyRow.id).where(ApiKeyRow.tenant_id == tenant_id)
    job_ids = select(JobRow.id).where(JobRow.tenant_id == tenant_id)
    ready = DatasetRow.tenant_id == tenant_id, DatasetRow.state == "ready"
    imported = ReleasedModelRow.tenant_id == tenant_id, ReleasedModelRow.job_id.is_(None)
    kept = JobRow.tenant_id == tenant_id, JobRow.results_removed_at.is_(None)
    people = ApiKeyRow.tenant_id == tenant_id, ApiKeyRow.id.startswith("sso_")
    persons = _count(session, ApiKeyRow, *people)
    unopened = IntakeRow.key_id.in_(own_keys), IntakeRow.state.in_(("validating", "review", "invalid"))
    return Removed(
        datasets=tuple(session.scalars(select(DatasetRow.id).where(*ready).order_by(DatasetRow.created_at))),
        jobs=tuple(session.scalars(select(JobRow.id).where(*kept).order_by(JobRow.created_at))),
        generators=tuple(session.scalars(select(ReleasedModelRow.id).where(*imported))),
        keys=_count(session, ApiKeyRow, ApiKeyRow.tenant_id == tenant_id) - persons,
        persons=persons,
        webhooks=_count(session, WebhookRow, WebhookRow.tenant_id == tenant_id),
        uploads=_count(session, UploadRow, UploadRow.key_id.in_(own_keys)) + _count(session, IntakeRow, *unopened),
        files=_count(session, ArtifactRow, ArtifactRow.job_id.in_(job_ids)),
    )


def proceed(database: Database, artifacts: ArtifactStore, settings: Settings, tenant_id: str) -> Tenant | None:
    """Remove what can be removed now; the tenant with its receipt once nothing is left, None before. Repeatable.

    Raises:
        StoreUnavailable: A file could not be removed; the next call tries again.
    """
    _cancel_jobs(database, tenant_id)
    for one in removal.preview(database, [tenant_id], removal.NOW, _AT_ONCE):
        if one.object_id is not None and one.waits_for is None:
            removal.remove_thing(
                database, settings, one.kind, one.object_id, _noting(tenant_id, one.kind, one.object_id)
            )
    _remove_uploads(database, settings, tenant_id)
    removed_files.remove_noted(database, artifacts, settings)
    return _finish(database, settings, tenant_id)


def proceed_all(database: Database, artifacts: ArtifactStore, settings: Settings) -> None:
    """Go on with all tenants that are being removed: a step of the loop that removes."""
    query = select(TenantRow.id).where(TenantRow.removing_since.is_not(None), TenantRow.removed_at.is_(None))
    with database.session() as session:
        leaving = session.scalars(query).all()
    for tenant_id in leaving:
        proceed(database, artifacts, settings, tenant_id)


def _cancel_jobs(database: Database, tenant_id: str) -> None:
    query = select(JobRow.id).where(JobRow.tenant_id == tenant_id, JobRow.state.in_(OPEN), ~JobRow.cancel_requested)
    with database.session() as session:
        job_ids = session.scalars(query).all()
    for job_id in job_ids:
        jobs.request_cancel(database, job_id)


def _noting(tenant_id: str, kind: str, object_id: str) -> Any:
    def settle(session: Session) -> None:
        action = f"remove{kind.capitalize()}"
        access_log.append(session, tenant_id, actor=removal.ACTOR, action=action, object_id=object_id, detail=_LEAVES)

    return settle


def _remove_uploads(database: Database, settings: Settings, tenant_id: str) -> None:
    own_keys = select(ApiKeyRow.id).where(ApiKeyRow.tenant_id == tenant_id)
    unopened = select(IntakeRow.dataset_id).where(
        IntakeRow.key_id.in_(own_keys), IntakeRow.state.in_(("validating", "review"))
    )
    with database.session() as session:
        waiting = session.scalars(unopened).all()
        partial = session.scalars(select(UploadRow.id).where(UploadRow.key_id.in_(own_keys))).all()
    for dataset_id in waiting:
        removal.remove_thing(database, settings, "uploads", dataset_id, _noting(tenant_id, "uploads", dataset_id))
    for upload_id in partial:
        with database.transaction() as session:
            note(session, RemovalKind.UPLOAD, upload_id)
        upload_sessions.remove(database, upload_id)


def _finish(database: Database, settings: Settings, tenant_id: str) -> Tenant | None:
    key = signing_key(database)
    with database.transaction() as session:
        row = get_or_refuse(session, TenantRow, tenant_id, "tenant", lock=True)
        if row.removed_at is not None or row.removing_since is None:
            return Tenant.from_row(row) if row.removed_at is not None else None
        stock = take_stock(session, tenant_id)
        if _is_left(session, tenant_id, stock):
            return None
        accounts = _list_accounts(session, tenant_id)
        _delete_rows(session, tenant_id)
        _blank_names(session, tenant_id)
        row.removed_at = read_database_clock(session)
        for noted_by in (tenant_id, DEFAULT_TENANT):
            access_log.append(
                session, noted_by, actor=removal.ACTOR, action="removeTenant", object_id=tenant_id, detail="done"
            )
        receipt = RemovalReceipt(
            product=Product.at_commit(settings.commit or source_commit()),
            tenant_id=tenant_id,
            tenant_name=row.name,
            requested_at=to_second(row.removing_since),
            removed_at=to_second(row.removed_at),
            removed=Removed.model_validate(row.receipt),
            kept=Remainder(
                accounts=accounts, journal=Head(seq=row.audit_seq, hash=row.audit_hash) if row.audit_seq else None
            ),
        )
        row.receipt = key.sign(receipt.model_dump(mode="json", exclude={"signature"}))
        session.flush()
        return Tenant.from_row(row)


def _is_left(session: Session, tenant_id: str, stock: Removed) -> bool:
    running = _count(session, JobRow, JobRow.tenant_id == tenant_id, JobRow.state.in_(OPEN))
    return bool(running or stock.datasets or stock.generators or stock.files or stock.uploads)


def _list_accounts(session: Session, tenant_id: str) -> tuple[KeptAccount, ...]:
    ids = select(DatasetRow.account_id).where(DatasetRow.tenant_id == tenant_id)
    rows = session.scalars(select(AccountRow).where(AccountRow.id.in_(ids)).order_by(AccountRow.created_at))
    return tuple(
        KeptAccount(
            id=row.id,
            epsilon=row.epsilon,
            delta=row.delta,
            limit_units=row.limit_units,
            charged_units=row.charged_units,
            head=Head(seq=row.head_seq, hash=row.head_hash),
        )
        for row in rows
    )


def _delete_rows(session: Session, tenant_id: str) -> None:
    own_keys = select(ApiKeyRow.id).where(ApiKeyRow.tenant_id == tenant_id)
    own_jobs = select(JobRow.id).where(JobRow.tenant_id == tenant_id)
    for statement in (
        *(
            delete(sums).where(sums.job_id.in_(own_jobs))
            for sums in (AggregateRow, ReleasedStateRow, ReleasedIteratesRow)
        ),
        delete(JobEventRow).where(JobEventRow.job_id.in_(own_jobs)),
        delete(DeliveryRow).where(DeliveryRow.tenant_id == tenant_id),
        delete(WebhookRow).where(WebhookRow.tenant_id == tenant_id),
        delete(ReleasedImageRow).where(ReleasedImageRow.job_id.in_(own_jobs)),
        delete(ReleaseLinkRow).where(ReleaseLinkRow.tenant_id == tenant_id),
        delete(ReleasedModelRow).where(ReleasedModelRow.tenant_id == tenant_id),
        delete(BrowserSessionRow).where(BrowserSessionRow.key_id.in_(own_keys)),
        delete(IntakeRow).where(IntakeRow.key_id.in_(own_keys)),
        delete(ApiKeyRow).where(ApiKeyRow.tenant_id == tenant_id),
        delete(TenantQuotaRow).where(TenantQuotaRow.tenant_id == tenant_id),
        delete(RetentionRow).where(RetentionRow.tenant_id == tenant_id),
    ):
        session.execute(statement)


def _blank_names(session: Session, tenant_id: str) -> None:
    """Keep no word of the owner's in rows that the budgets need."""
    for row in session.scalars(select(DatasetRow).where(DatasetRow.tenant_id == tenant_id)):
        numbers = [str(label) for label in range(len(row.schema["class_names"]))]
        row.name, row.notes, row.tags, row.schema = row.id, "", [], {**row.schema, "class_names": numbers}
    blank: dict[str, Any] = {
        "name": "",
        "notes": "",
        "tags": [],
        "error": None,
        "idempotency_key": None,
        "decision_reason": None,
    }
    session.execute(update(JobRow).where(JobRow.tenant_id == tenant_id).values(blank))


def _count(session: Session, row: type[Any], *which: ColumnElement[bool]) -> int:
    query: Select[Any] = select(func.count()).select_from(row).where(*which)
    return session.scalar(query) or 0
