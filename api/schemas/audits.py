"""Audits: what was asked, how far they are, and what they found. For the owner alone."""

from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field

from datalens_service.api.addresses import Link
from datalens_service.api.schemas.common import listed
from datalens_service.api.schemas.jobs import SUBMITTED_BY, JobError, ProgressRead
from datalens_service.audits.audit import AuditResult
from datalens_service.audits.request import AttackName, AuditRequest, InversionEffort, Target
from datalens_service.base.clock import utc_now  # noqa: TID251 (an estimate is shown, and decides nothing)
from datalens_service.base.fields import copied
from datalens_service.base.wording import speak
from datalens_service.proof.spenders import Actor
from datalens_service.services.stored_requests import read_audit_request
from datalens_service.store.jobs.audits import StoredAudit
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.remaining_time import estimate_seconds_left

AUDIT_STATES = {
    JobState.QUEUED: "waiting for a worker",
    JobState.RUNNING: "a worker trains and attacks",
    JobState.SUCCEEDED: "`result` has what attacks found, until the dataset is deleted",
    JobState.FAILED: "`error` says why",
    JobState.CANCELLED: "stopped on request",
}


class PrivacyAuditLinks(BaseModel):
    """Links of an audit; null where there is nothing any more."""

    self_: Link = Field(serialization_alias="self")
    cancel: Link | None
    picture: Link | None


class PrivacyAuditRead(BaseModel):
    """An audit. Nothing was charged for it, because nothing of it leaves the owner."""

    id: str
    dataset_id: str
    state: JobState = Field(description=listed(AUDIT_STATES))
    target: Target = Field(description="The target of the attack, with defaults filled in.")
    attacks: list[AttackName]
    references: int
    candidates: int
    seed: int
    inversion: InversionEffort
    groups: dict[str, tuple[str, ...]]
    progress: ProgressRead = Field(description="Progress as the number of trained models.")
    attempts: int
    cancel_requested: bool
    submitted_by: Actor | None = Field(description=SUBMITTED_BY)
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    waiting_reason: str | None = Field(description="Why it does not go on, if something is in the way; else null.")
    error: JobError | None
    result: AuditResult | None = Field(
        description="Lower bounds with intervals of 95 %, and beside each curve the one that μ allows. For the owner "
        "alone: the figures depend on private records."
    )
    links: PrivacyAuditLinks

    @classmethod
    def from_audit(cls, audit: StoredAudit, waiting: str | None = None, submitted_by: Actor | None = None) -> Self:
        """Return an audit as clients see it.

        Args:
            waiting: The reason why it does not go on, for its reader's voice.
            submitted_by: The key or person, for readers who may know it.
        """
        job, request = audit.job, read_audit_request(audit.job)
        base = f"/v1/audits/{job.id}"
        left = None if waiting else estimate_seconds_left(job, utc_now())
        return copied(
            cls,
            job,
            **{name: getattr(request, name) for name in AuditRequest.model_fields},
            progress=ProgressRead.from_progress(job.progress, left),
            waiting_reason=waiting and speak(waiting),
            error=JobError.from_error(job.error) if job.error else None,
            submitted_by=submitted_by,
            result=None if audit.result is None else AuditResult.model_validate(audit.result),
            links=PrivacyAuditLinks(
                self_=base,
                cancel=None if job.state.terminal else f"{base}:cancel",
                picture=None if audit.picture is None else f"{base}/picture",
            ),
        )
