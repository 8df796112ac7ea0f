"""Audits: attack a method or a released model, for the owner of the records alone."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Body, Query, Response

from datalens_service.api.deps import After, Caller, Limit, ObjectId, Services, ServicesDep
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import ok, private_picture
from datalens_service.api.problems.handlers import PRIVATE
from datalens_service.api.rest.jobs import RETRY_AFTER_SECONDS, IdempotencyKey
from datalens_service.api.schemas.audits import PrivacyAuditRead
from datalens_service.api.schemas.common import Page
from datalens_service.api.security.permissions import check_scope, show_submitter
from datalens_service.audits.request import AuditRequest
from datalens_service.base.errors import NotFound
from datalens_service.services import audits as submitting
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.services.waiting import explain_waiting
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.access.roles import Scope
from datalens_service.store.jobs import audits, jobs
from datalens_service.store.jobs.audits import StoredAudit

router = APIRouter(prefix="/v1/audits", route_class=StrictRoute, tags=["audits"])
_SUBMISSION: Final = (
    "invalid-input",
    "invalid-spec",
    "invalid-delta",
    "epsilon-infeasible",
    "not-found",
    "state-conflict",
)


@router.post(
    "",
    summary="Attack a method in rehearsal, or a released model",
    responses=ok(202, "Accepted; the audit exists.", *_SUBMISSION, headers=("Location", "Retry-After")),
)
def create_audit(
    request: Annotated[AuditRequest, Body(openapi_examples=examples.AUDITS)],
    services: ServicesDep,
    key: Caller,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> PrivacyAuditRead:
    """A worker trains the models and drops them. Nothing is charged, because only the owner sees what comes of it."""
    check_scope(key, Scope.JOBS_WRITE)
    audit = submitting.submit(
        services.database,
        services.dispatcher,
        key.tenant_id,
        request,
        submitted_by=key.id,
        max_attempts=services.settings.max_attempts,
        idempotency_key=idempotency_key,
    )
    response.headers["Location"] = f"/v1/audits/{audit.job.id}"
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return read_audits(services, key, [audit])[0]


@router.get("", summary="List audits, newest first", responses=ok(200, "A page of the list."))
def list_audits(
    services: ServicesDep,
    key: Caller,
    limit: Limit = 20,
    after: After = None,
    dataset_id: Annotated[
        str | None, Query(max_length=64, pattern=IDENTIFIER, description="Only audits on this dataset.")
    ] = None,
    job_id: Annotated[
        str | None, Query(max_length=64, pattern=IDENTIFIER, description="Only audits of this job's model.")
    ] = None,
) -> Page[PrivacyAuditRead]:
    """Audits of all datasets, or those that the filters leave, each with what it found."""
    page = audits.list_audits(
        services.database, key.tenant_id, limit=limit, cursor=after, dataset_id=dataset_id, attacked_job_id=job_id
    )
    return Page.build(page, read_audits(services, key, page.items))


@router.get(
    "/{audit_id}", summary="Read what an audit found", responses=ok(200, "The audit.", headers=("Retry-After",))
)
def get_audit(audit_id: ObjectId, services: ServicesDep, key: Caller, response: Response) -> PrivacyAuditRead:
    """`Retry-After` says when it is worth looking again; it is left out once the audit has ended."""
    audit = audits.get(services.database, audit_id)
    if not audit.job.state.terminal:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return read_audits(services, key, [audit])[0]


@router.get(
    "/{audit_id}/picture",
    summary="See what inversion made of gradients: for the owner of the records",
    response_class=Response,
    responses=private_picture("Private records, with their reconstructions below."),
)
def get_audit_picture(audit_id: ObjectId, services: ServicesDep) -> Response:
    """Records, what a raw gradient shows of each, and what the released one shows. Deleted with the dataset."""
    picture = audits.get(services.database, audit_id).picture
    if picture is None:
        raise NotFound("This audit has no picture: it did not ask for inversion, has not ended, or its data is gone.")
    return Response(picture, media_type="image/png", headers=PRIVATE)


@router.post(
    "/{audit_id}:cancel",
    summary="Stop an audit",
    responses=ok(202, "A queued audit is cancelled; a running one stops before its next step.", "state-conflict"),
)
def cancel_audit(audit_id: ObjectId, services: ServicesDep, key: Caller) -> PrivacyAuditRead:
    """An audit charges nothing, so nothing returns."""
    check_scope(key, Scope.JOBS_WRITE)
    jobs.request_cancel(services.database, audit_id)
    return read_audits(services, key, [audits.get(services.database, audit_id)])[0]


def read_audits(services: Services, key: ApiKey, found: Sequence[StoredAudit]) -> list[PrivacyAuditRead]:
    """Return audits as a caller sees them, with why they wait."""
    reasons = explain_waiting(services.database, services.surroundings.faults, [audit.job for audit in found])
    return [
        PrivacyAuditRead.from_audit(audit, reasons.get(audit.job.id), show_submitter(audit.job, key)) for audit in found
    ]
