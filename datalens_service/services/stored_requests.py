"""Reads what a job stored of its request, perhaps by another version than this one.

While a service is upgraded, two versions work on one database. A job of a newer format may have members that this
version does not know, which it leaves out where it shows the job; it does not run it (`store/jobs/leases.py`).
"""

from typing import Any, TypeVar

from pydantic import ValidationError

from datalens_service.audits.request import AuditRequest
from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.fields import Strict
from datalens_service.spec import TrainingSpec
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.schema.tables import JOB_FORMAT

T = TypeVar("T", bound=Strict)


def read_spec(job: Job) -> TrainingSpec:
    """Return the request for training.

    Raises:
        StoreUnavailable: A newer version stored what this one cannot show.
    """
    return _read(TrainingSpec, job)


def read_audit_request(job: Job) -> AuditRequest:
    """Return the request for an audit.

    Raises:
        StoreUnavailable: A newer version stored what this one cannot show.
    """
    return _read(AuditRequest, job)


def stored_members(job: Job) -> dict[str, Any]:
    """Return all members of the request, for a copy of the job.

    Raises:
        StoreUnavailable: A newer version submitted it; a copy could lack what this one does not know.
    """
    if job.format > JOB_FORMAT:
        raise _of_newer_version()
    return job.spec


def _read(model: type[T], job: Job) -> T:
    if job.format <= JOB_FORMAT:
        return model.model_validate(job.spec)
    try:
        return model.model_validate(job.spec, extra="ignore")
    except ValidationError as error:
        raise _of_newer_version() from error


def _of_newer_version() -> StoreUnavailable:
    return StoreUnavailable(
        "A newer version of the service stored this job, and this one cannot read it; repeat the request when the "
        "upgrade has ended."
    )
