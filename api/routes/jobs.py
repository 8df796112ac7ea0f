"""Jobs: submit, follow, cancel."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Body, Depends, Header, Response, status

from api import examples, pricing
from api.deps import After, Limit, ObjectId, ServicesDep, caller
from api.openapi import JOB_LINKS, ok, problems
from api.schemas import JobRead, Page, TrainingRequest
from datalens_service.store import jobs

RETRY_AFTER_SECONDS: Final = 2

router = APIRouter(
    prefix="/v1/jobs",
    tags=["jobs"],
    dependencies=[Depends(caller)],
    responses=problems("unauthorized", "store-unavailable", "internal-error"),
)
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
    operation_id="createJob",
    summary="Submit a training job and reserve its budget",
    status_code=status.HTTP_202_ACCEPTED,
    responses={
        **ok(202, "Accepted; the job exists.", headers=("Location", "Retry-After"), links=JOB_LINKS),
        **problems(
            "privacy-budget-exceeded",
            "invalid-input",
            "invalid-spec",
            "invalid-delta",
            "epsilon-infeasible",
            "not-found",
            "state-conflict",
            "ledger-corrupt",
        ),
    },
)
def create_job(
    wanted: Annotated[TrainingRequest, Body(openapi_examples=examples.REQUESTS)],
    opened: ServicesDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobRead:
    """Job and reservation are written in one transaction: there is never one without the other."""
    quote = pricing.quote(opened.database, wanted.dataset_id, wanted.spec)
    job = jobs.create(
        opened.database,
        dataset_id=wanted.dataset_id,
        spec=quote.spec.model_dump(mode="json"),
        plan=quote.cost.model_dump(mode="json"),
        units=quote.cost.units,
        max_attempts=opened.settings.max_attempts,
        idempotency_key=idempotency_key,
    )
    opened.dispatcher.submitted(job.id)
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return JobRead.of(job)


@router.get(
    "",
    operation_id="listJobs",
    summary="List jobs, newest first",
    responses={**ok(200, "A portion of the list."), **problems("invalid-input")},
)
def list_jobs(opened: ServicesDep, limit: Limit = 20, after: After = None) -> Page[JobRead]:
    """Jobs of all data sets."""
    found = jobs.list_jobs(opened.database, limit=limit, cursor=after)
    items = [JobRead.of(job) for job in found.items]
    return Page(items=items, has_more=found.next_cursor is not None, next_cursor=found.next_cursor)


@router.get(
    "/{job_id}",
    operation_id="getJob",
    summary="Read a job's state, progress and spending",
    responses={
        **ok(200, "The job.", headers=("Retry-After",)),
        **problems("not-found", "invalid-input"),
    },
)
def get_job(job_id: ObjectId, opened: ServicesDep, response: Response) -> JobRead:
    """`Retry-After` says when it is worth looking again; it is left out once the job has ended."""
    job = jobs.get(opened.database, job_id)
    if not job.state.terminal:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return JobRead.of(job)


@router.post(
    "/{job_id}:cancel",
    operation_id="cancelJob",
    summary="Stop a job between two steps",
    status_code=status.HTTP_202_ACCEPTED,
    responses={
        **ok(202, "A queued job is cancelled; a running one stops before its next step."),
        **problems("not-found", "state-conflict", "invalid-input"),
    },
)
def cancel_job(job_id: ObjectId, opened: ServicesDep) -> JobRead:
    """What it has charged stays charged; the rest of its reservation returns when it has stopped."""
    return JobRead.of(jobs.request_cancel(opened.database, job_id))
