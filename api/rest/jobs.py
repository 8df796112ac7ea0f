"""Jobs: submit, look at, pause, go on with, cancel, repeat."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Body, Header, Query, Response

from datalens_service.adapters.startup import check_disks
from datalens_service.api.deps import After, Caller, Limit, ObjectId, Services, ServicesDep
from datalens_service.api.http.strictness import StrictRoute, as_request_errors
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import ok
from datalens_service.api.schemas.common import Page, ReleaseMode, TrainingRequest
from datalens_service.api.schemas.jobs import CloneRequest, Decision, JobRead
from datalens_service.api.schemas.labels import JobChanges
from datalens_service.api.security.permissions import show_submitter
from datalens_service.base.errors import InvalidInput
from datalens_service.base.fields import Moment
from datalens_service.planning.advice import check_utility
from datalens_service.services import encoders, pricing
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.services.submit_job import submit_job
from datalens_service.services.waiting import explain_waiting
from datalens_service.store import labels
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.jobs import approvals, jobs
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.released_models import Approval

RETRY_AFTER_SECONDS: Final = 2

router = APIRouter(prefix="/v1/jobs", route_class=StrictRoute, tags=["jobs"])
_SUBMISSION: Final = (
    "privacy-budget-exceeded", "invalid-input", "invalid-spec", "invalid-delta", "epsilon-infeasible", "low-utility",
    "not-found", "state-conflict", "ledger-corrupt", "quota-exceeded", "insufficient-storage",
)  # fmt: skip
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Chosen by the client, for example a UUID: the same key with the same request is the same job.",
    ),
]


@router.post(
    "",
    summary="Submit a training job and reserve its budget",
    responses=ok(202, "Accepted; the job exists.", *_SUBMISSION, headers=("Location", "Retry-After"), made="job_id"),
)
def create_job(
    request: Annotated[TrainingRequest, Body(openapi_examples=examples.REQUESTS)],
    services: ServicesDep,
    key: Caller,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobRead:
    """Job and reservation are written in one transaction: there is never one without the other."""
    return _submitted(services, key, response, request, idempotency_key)


@router.get("", summary="List jobs, newest first", responses=ok(200, "A page of the list."))
def list_jobs(
    services: ServicesDep,
    key: Caller,
    limit: Limit = 20,
    after: After = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    dataset_id: Annotated[
        str | None, Query(max_length=64, pattern=IDENTIFIER, description="Only jobs on this dataset.")
    ] = None,
    method: Annotated[str | None, Query(max_length=100, description="Only jobs of this method.")] = None,
    search: Annotated[
        str | None, Query(max_length=200, description="Only jobs with this in their name, or as a tag.")
    ] = None,
    created_after: Annotated[Moment | None, Query(description="Only jobs created then or later.")] = None,
    created_before: Annotated[Moment | None, Query(description="Only jobs created before.")] = None,
) -> Page[JobRead]:
    """Jobs of all datasets, or those that the filters leave."""
    which = JobFilter(key.tenant_id, dataset_id, state, method, search, created_after, created_before)
    page = jobs.list_jobs(services.database, which, limit=limit, cursor=after)
    return Page.build(page, read_jobs(services, key, page.items))


@router.get(
    "/{job_id}",
    summary="Read a job's state, progress and spending",
    responses=ok(200, "The job.", headers=("Retry-After",)),
)
def get_job(job_id: ObjectId, services: ServicesDep, key: Caller, response: Response) -> JobRead:
    """`Retry-After` says when it is worth looking again; it is left out once the job has ended."""
    job = jobs.get(services.database, job_id)
    if not job.state.terminal:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return _read_job(services, key, job)


@router.patch("/{job_id}", summary="Name, tag and annotate a job", responses=ok(200, "The job as it is now."))
def update_job(
    job_id: ObjectId,
    changes: Annotated[JobChanges, Body(openapi_examples=examples.LABELS)],
    services: ServicesDep,
    key: Caller,
) -> JobRead:
    """Labels are for finding a job again; it may have ended. They change no price and no result."""
    return _read_job(services, key, labels.label_job(services.database, job_id, changes.changed()))


@router.post(
    "/{job_id}:cancel",
    summary="Stop a job between two steps",
    responses=ok(202, "A queued job is cancelled; a running one stops before its next step.", "state-conflict"),
)
def cancel_job(job_id: ObjectId, services: ServicesDep, key: Caller) -> JobRead:
    """Its charges stay charged; the rest of its reservation returns when it has stopped."""
    return _read_job(services, key, jobs.request_cancel(services.database, job_id))


@router.post(
    "/{job_id}:pause",
    summary="Pause a job between two steps",
    responses=ok(202, "A queued job is paused; a running one stops before its next step.", "state-conflict"),
)
def pause_job(job_id: ObjectId, services: ServicesDep, key: Caller) -> JobRead:
    """Reservation, checkpoint and released sums stay; ε does not depend on how often a job was paused."""
    return _read_job(services, key, jobs.request_pause(services.database, job_id))


@router.post(
    "/{job_id}:resume",
    summary="Resume a paused job",
    responses=ok(202, "It waits for a worker again.", "state-conflict"),
)
def resume_job(job_id: ObjectId, services: ServicesDep, key: Caller) -> JobRead:
    """Noisy sums that were drawn are replayed, not drawn again. A pause that has not begun yet is called off."""
    job = jobs.resume(services.database, job_id)
    services.dispatcher.submitted(job.id, job.queue)
    return _read_job(services, key, job)


@router.post(
    "/{job_id}:release",
    summary="Release a result that waits for a second person",
    responses=ok(200, "The job as it is now.", "state-conflict"),
)
def release_job(
    job_id: ObjectId,
    decision: Annotated[Decision, Body(openapi_examples=examples.DECISIONS)],
    services: ServicesDep,
    key: Caller,
) -> JobRead:
    """From then on it is handed out like that of any job. Whoever submitted the job is refused.

    Decide by what is public or covered by the guarantee: a decision that rests on private figures tells of them.
    """
    return _read_job(
        services, key, approvals.decide(services.database, key, job_id, Approval.RELEASED, decision.reason)
    )


@router.post(
    "/{job_id}:withhold",
    summary="Withhold a result from everybody",
    responses=ok(200, "The job as it is now.", "state-conflict"),
)
def withhold_job(
    job_id: ObjectId,
    decision: Annotated[Decision, Body(openapi_examples=examples.DECISIONS)],
    services: ServicesDep,
    key: Caller,
) -> JobRead:
    """Nothing is refunded, and what was downloaded before stays where it is. A further decision may release it."""
    return _read_job(
        services, key, approvals.decide(services.database, key, job_id, Approval.WITHHELD, decision.reason)
    )


@router.post(
    "/{job_id}:clone",
    summary="Submit a job like another one",
    responses=ok(
        202, "Accepted; the new job exists.", *_SUBMISSION, headers=("Location", "Retry-After"), made="job_id"
    ),
)
def clone_job(
    job_id: ObjectId,
    services: ServicesDep,
    key: Caller,
    response: Response,
    changes: Annotated[CloneRequest | None, Body(openapi_examples=examples.CLONES)] = None,
    idempotency_key: IdempotencyKey = None,
) -> JobRead:
    """A new job with a reservation of its own: what it releases is new, and costs again."""
    changes, job = changes or CloneRequest(), jobs.get(services.database, job_id)
    with as_request_errors(changes.model_dump(exclude_none=True)):
        # A method takes no members of another kind of result.
        request = changes.applied_to(job)
    return _submitted(services, key, response, request, idempotency_key)


def _submitted(
    services: Services, key: ApiKey, response: Response, request: TrainingRequest, idempotency_key: str | None
) -> JobRead:
    highest = services.settings.highest_priority
    if request.priority > highest:
        raise InvalidInput(f"This service allows priorities from 0 to {highest}; lower ⟦spec.priority⟧.")
    # No worker would take it.
    check_disks(services.settings)
    priced = pricing.price_request(services.database, key.tenant_id, request.dataset_id, request.spec, services.prices)
    encoders.find(services.artifacts, priced.spec.method)
    if not request.accept_low_utility:
        check_utility(priced.spec, priced.schema)
    job = submit_job(
        services.database,
        services.dispatcher,
        priced,
        submitted_by=key.id,
        max_attempts=services.settings.max_attempts,
        idempotency_key=idempotency_key,
        priority=request.priority,
        needs_approval=request.release is ReleaseMode.AFTER_APPROVAL,
    )
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return _read_job(services, key, job)


def read_jobs(services: Services, key: ApiKey, found: Sequence[Job]) -> list[JobRead]:
    """Return jobs as a caller sees them, with why they wait."""
    reasons = explain_waiting(services.database, services.surroundings.faults, found)
    return [JobRead.from_job(job, reasons.get(job.id), show_submitter(job, key)) for job in found]


def _read_job(services: Services, key: ApiKey, job: Job) -> JobRead:
    return read_jobs(services, key, [job])[0]
