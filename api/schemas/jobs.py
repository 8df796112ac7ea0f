"""Shapes of jobs, and of requests about them."""

import math
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, Field

from datalens_service.api.addresses import Link
from datalens_service.api.problems.problem_types import INTERNAL, PROBLEM_TYPES
from datalens_service.api.schemas.common import NumberedPage, ReleaseMode, TrainingRequest, listed
from datalens_service.base.clock import utc_now  # noqa: TID251 (an estimate is shown, and decides nothing)
from datalens_service.base.fields import Flag, Integer, Number, Stated, Strict, copied
from datalens_service.base.wording import speak
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.privacy.accounting import Charge, stated_epsilon
from datalens_service.proof.spenders import Actor
from datalens_service.services.dataset_declaration import IDENTIFIER, Words
from datalens_service.services.pricing import JobPrivacy
from datalens_service.services.stored_requests import read_spec, stored_members
from datalens_service.spec import Device, NamedMethod, PlanSummary, TrainingSpec
from datalens_service.store.jobs import released_models
from datalens_service.store.jobs.events import Event, EventType
from datalens_service.store.jobs.jobs import Job, JobState, Progress
from datalens_service.store.jobs.released_models import CLASSIFIER, GENERATOR, Approval
from datalens_service.store.jobs.remaining_time import estimate_seconds_left

JOB_STATES: Final = {
    JobState.QUEUED: "accepted, its budget reserved, waiting for a worker",
    JobState.RUNNING: "a worker holds its lease",
    JobState.PAUSED: "stopped until it is resumed; reservation and checkpoint stay",
    JobState.SUCCEEDED: "images, generator, proof and report are there",
    JobState.FAILED: "`error` says why; charges stay",
    JobState.CANCELLED: "stopped on request; charges stay",
}

SUBMITTED_BY: Final = (
    "The key or person that submitted it; for keys with `audit:read`. Null for others, and where it was not recorded."
)

APPROVALS: Final = {
    Approval.WAITING: "nobody has decided; the result is handed out to nobody",
    Approval.RELEASED: "the result is handed out like that of any job",
    Approval.WITHHELD: "the result is handed out to nobody",
}
_MINUTE: Final = 60


class CloneRequest(Strict):
    """Changes of a copied job; whatever is left out stays as it was."""

    dataset_id: str | None = Field(default=None, max_length=64, pattern=IDENTIFIER, description="Another dataset.")
    method: NamedMethod | None = None
    epsilon: Number | None = Field(default=None, gt=0, le=100)
    seed: Integer | None = Field(default=None, ge=0, lt=2**63)
    synthetic_images: Integer | None = Field(default=None, ge=1, le=1_000_000)
    device: Device | None = None
    priority: Integer | None = Field(default=None, ge=0, le=9)
    evaluation: EvaluationSettings | None = None
    accept_low_utility: Flag = Field(default=False, description="Accept low utility, as for a new job.")

    def applied_to(self, job: Job) -> TrainingRequest:
        """The request for the copy; δ is that of its dataset."""
        changes = self.model_dump(exclude={"dataset_id", "priority", "accept_low_utility"}, exclude_none=True)
        request = RequestedSpec.model_validate({**stored_members(job), "delta": None, **changes})
        priority = job.priority if self.priority is None else self.priority
        return TrainingRequest(
            dataset_id=self.dataset_id or job.dataset_id,
            spec=request,
            priority=priority,
            # What one person began alone is not repeated past the second one.
            release=ReleaseMode.AT_ONCE if job.approval is None else ReleaseMode.AFTER_APPROVAL,
            accept_low_utility=self.accept_low_utility,
        )


class ProgressRead(BaseModel):
    """Progress of a job, in public numbers."""

    phase: str | None
    value: int
    maximum: int
    eta_seconds: int | None = Field(
        description="Estimate for the rest of the job, in whole minutes; null while there is none."
    )

    @classmethod
    def from_progress(cls, progress: Progress, left: float | None) -> Self:
        """Progress of a job that goes on for so many seconds, if that is known."""
        eta = None if left is None else _MINUTE * math.ceil(left / _MINUTE)
        return copied(cls, progress, eta_seconds=eta)


class JobError(BaseModel):
    """Says why a job failed."""

    type: Link = Field(description="URI of the problem type, relative to the host; stable behind a root path.")
    title: str
    detail: str
    code: str = Field(description="Last part of `type`.")

    @classmethod
    def from_error(cls, error: dict[str, Any]) -> Self:
        """The error a worker left on the job."""
        known = PROBLEM_TYPES.get(str(error.get("type")).removeprefix("/problems/"), INTERNAL)
        return cls(type=known.uri, title=known.title, detail=speak(error.get("detail", known.remedy)), code=known.slug)


OfClassifier = Annotated[Link | None, Field(exclude_if=lambda link: link is None)]
"""A link that only a job has that made a classifier."""

OfApproval = Annotated[Link | None, Field(exclude_if=lambda link: link is None)]
"""A link that only a job has whose result a second person decides about."""


class ApprovalRead(BaseModel):
    """The decision of a second person about the result of a job."""

    state: Approval = Field(description=listed(APPROVALS))
    decided_at: datetime | None
    reason: str | None = Field(description="Why, in the words of whoever decided.")

    @classmethod
    def from_job(cls, job: Job) -> Self | None:
        """Return the decision; None for a job that asked for no approval."""
        if job.approval is None:
            return None
        return copied(cls, job, state=job.approval, reason=job.decision_reason)


class Decision(Strict):
    """A decision about a result, with its reason, which the audit journal keeps."""

    reason: Words = Field(description="Why; for the audit journal and for whoever submitted the job.")


class JobLinks(BaseModel):
    """Links of a job; null where there is nothing yet or any more."""

    self_: Link = Field(serialization_alias="self")
    events: Link
    cancel: Link | None
    pause: Link | None
    resume: Link | None
    clone: Link
    files: Link = Field(description="Every file of the job, each with its audience.")
    report: Link | None = Field(description="The report for the owner; another `audience` gives the one to pass on.")
    bundle: Link | None
    samples: Link | None
    synthetic: Link | None
    generator: Link | None
    classifier: OfClassifier = Field(default=None, description="The classifier as safetensors.")
    onnx: OfClassifier = Field(default=None, description="The classifier as ONNX.")
    archive: OfClassifier = Field(default=None, description="The classifier as a zip to publish.")
    predictions: OfClassifier = Field(default=None, description="The address for images to classify.")
    release: OfApproval = Field(default=None, description="Where a second person releases a result that is held back.")
    withhold: OfApproval = Field(default=None, description="Where a second person withholds the result.")

    @classmethod
    def from_job(cls, job: Job) -> Self:
        """Links that the job's state allows to follow."""
        base = f"/v1/jobs/{job.id}"
        files = job.released_at is not None
        given = files and not job.is_held
        made = job.result if given else None
        decides = job.approval is not None and job.state is JobState.SUCCEEDED
        return cls(
            self_=base,
            events=f"{base}/events",
            cancel=None if job.state.terminal else f"{base}:cancel",
            pause=None if job.state.terminal or job.pause_requested or job.cancel_requested else f"{base}:pause",
            resume=f"{base}:resume" if job.pause_requested and not job.state.terminal else None,
            clone=f"{base}:clone",
            files=f"{base}/artifacts",
            report=f"{base}/report?audience=owner" if files else None,
            bundle=f"{base}/bundle" if given else None,
            samples=f"{base}/samples.png" if files and job.result == GENERATOR else None,
            synthetic=f"{base}/synthetic" if made == GENERATOR else None,
            generator=f"{base}/generator" if made == GENERATOR else None,
            release=f"{base}:release" if decides and job.is_held else None,
            withhold=f"{base}:withhold" if decides and job.approval is not Approval.WITHHELD else None,
            **_classifier_links(job.id) if made == CLASSIFIER else {},
        )


def _classifier_links(job_id: str) -> dict[str, str]:
    base = f"/v1/jobs/{job_id}"
    predictions = f"/v1/classifiers/{released_models.build_id(job_id, CLASSIFIER)}/predictions"
    return {
        "classifier": f"{base}/classifier",
        "onnx": f"{base}/classifier.onnx",
        "archive": f"{base}/classifier.zip",
        "predictions": predictions,
    }


class JobRead(BaseModel):
    """A training job with its state."""

    id: str
    dataset_id: str
    name: str = Field(description="Name given by `PATCH`; until then preset and ε, as in `Best-looking, ε 1`.")
    tags: list[str]
    notes: str
    state: JobState = Field(description=listed(JOB_STATES))
    phase: str | None = Field(description="What a running job does now.")
    progress: ProgressRead
    attempts: int = Field(description="Workers that took it without storing a step since.")
    priority: int = Field(description="Waiting jobs with a higher priority start first.")
    cancel_requested: bool
    pause_requested: bool
    spec: TrainingSpec = Field(description="The request, with defaults filled in.")
    cost: PlanSummary = Field(description="The planned cost of the whole job.")
    privacy: JobPrivacy
    submitted_by: Actor | None = Field(description=SUBMITTED_BY)
    created_at: datetime
    started_at: datetime | None
    released_at: datetime | None = Field(
        description="When images, generator and proof became ready. The evaluation may go on; the report has its "
        "measurements once the job has ended. From then on the job can only succeed."
    )
    finished_at: datetime | None
    results_removed_at: datetime | None = Field(
        default=None, description="When its files and its model were removed for their age; what it charged stays."
    )
    estimated_finish_at: datetime | None = Field(
        description="When a running job is likely to end, to the minute; null while there is no estimate."
    )
    waiting_reason: str | None = Field(
        description="Why a job does not go on, where something is in the way: a full disk, other jobs, a worker that "
        "was lost, is missing, cannot start jobs or has no GPU, or a running job's worker that is silent; else null."
    )
    approval: ApprovalRead | None = Field(
        description="The decision of a second person about its result; null unless it was submitted with `release`: "
        "`after_approval`."
    )
    error: JobError | None
    links: JobLinks

    @classmethod
    def from_job(cls, job: Job, waiting: str | None = None, submitted_by: Actor | None = None) -> Self:
        """Return a job as clients see it.

        Args:
            waiting: The reason why it does not go on, for its reader's voice.
            submitted_by: The key or person, for readers who may know it.
        """
        price = PlanSummary.model_validate(job.price)
        now = utc_now()
        goes_on = job.state == JobState.RUNNING and waiting is None
        left = estimate_seconds_left(job, now) if goes_on else None
        # The first whole minute behind it.
        finish = None if left is None else now + timedelta(seconds=left + _MINUTE)
        return copied(
            cls,
            job,
            phase=job.progress.phase,
            progress=ProgressRead.from_progress(job.progress, left),
            spec=read_spec(job),
            cost=price.spoken(),
            privacy=JobPrivacy.from_job(job, price),
            submitted_by=submitted_by,
            estimated_finish_at=finish and finish.replace(second=0, microsecond=0),
            waiting_reason=waiting and speak(waiting),
            approval=ApprovalRead.from_job(job),
            error=JobError.from_error(job.error) if job.error else None,
            links=JobLinks.from_job(job),
        )


class EventRead(BaseModel):
    """An event of a job, in public numbers."""

    id: int = Field(description="Number within the job, from 1 and without gaps; the `id` of the stream.")
    type: EventType
    state: JobState = Field(description="State of the job after the event.")
    phase: str | None
    value: int
    maximum: int
    epsilon_spent: Stated = Field(description="ε at `delta` that the job had spent by then, rounded up.")
    delta: Stated
    created_at: datetime = Field(description="Time to the second; for progress, to the minute.")

    @classmethod
    def from_event(cls, event: Event, delta: float, slack: int = 0) -> Self:
        """Return an event as clients see it.

        Args:
            slack: Slack of the job's plan, in 1e-18 of δ; as spent as soon as anything is.
        """
        charge = Charge(event.charged_units, slack if event.charged_units else 0)
        spent = stated_epsilon(charge, delta)
        return copied(cls, event, id=event.seq, epsilon_spent=spent, delta=delta)


class EventPage(NumberedPage[EventRead]):
    """A page of the events of a job, oldest first."""
