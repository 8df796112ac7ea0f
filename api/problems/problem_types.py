"""Every type of problem the API answers with: its status, what it means and what to do about it.

`/problems/{slug}`, a page of the site and the OpenAPI document are made from this list.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from datalens_service.base import errors
from datalens_service.base.wording import speak


@dataclass(frozen=True)
class ProblemType:
    """One type of problem.

    Attributes:
        slug: Last part of the type URI, also the member "code"; never changes its meaning.
        title: The same for every occurrence.
        status: HTTP status; None for problems that only stand on a job.
        advice: Sentence on what to do, like `remedy` but without its reader: names stand as `⟦name⟧`.
    """

    slug: str
    title: str
    status: int | None
    meaning: str
    advice: str

    @property
    def remedy(self) -> str:
        """Say what to do about it, in the words of the interface that its reader uses."""
        return speak(self.advice)

    @property
    def uri(self) -> str:
        """RFC 9457 `type` within the service."""
        return f"/problems/{self.slug}"


_OF_ERRORS: Final[tuple[tuple[type[errors.DatalensError], int | None, str], ...]] = (
    (errors.InvalidInput, 422, "⟦correct_members⟧."),
    (errors.InvalidSpec, 422, "Correct the training request as the error says. ⟦try_plan⟧ for free."),
    (errors.InvalidDelta, 422, "Leave ⟦spec.delta⟧ out: that of the data set is used. It must lie below 1/n."),
    (errors.InfeasiblePlan, 422, "Raise ⟦spec.epsilon⟧, or make a step cheaper as the error says. Nothing was spent."),
    (errors.LowUtility, 422, "Follow the advice in the error, or ⟦accept_low_utility⟧. Nothing was spent."),
    (errors.UnreachableAccuracy, 422, "Ask for less, or upload more images, as the error says. Nothing was spent."),
    (errors.InvalidDataset, 422, "Correct the file as the error says and upload it again. Nothing of it was kept."),
    (
        errors.PersonsInBothSplits,
        422,
        "Put all images of one person into one split and upload the file again, or leave ⟦public_test⟧ out: then these "
        "test images are left out of figures, and the figures are yours alone.",
    ),
    (errors.BudgetExceeded, 409, "Ask for at most ⟦budget_remaining⟧. Spent budget does not come back."),
    (errors.NotFound, 404, "Check the address or the id. The lists show what there is."),
    (errors.StateConflict, 409, "Read the object again and do what its state allows."),
    (errors.UploadOffsetMismatch, 409, "⟦ask_offset⟧."),
    (errors.UploadLocked, 423, "Wait until the other request has ended, then ⟦ask_offset⟧."),
    (errors.ChecksumMismatch, 460, "Send the chunk again. Nothing of it was kept."),
    (errors.ProtocolMismatch, 412, "⟦send_version⟧."),
    (
        errors.InsufficientStorage,
        503,
        "Tell the operator that the disk in the error is full. A resumable upload keeps the bytes that had arrived.",
    ),
    (errors.Unauthorized, 401, "⟦send_key⟧ that was not revoked."),
    (errors.Forbidden, 403, "Use a key with the scope that the error names, or ask for a new address."),
    (errors.RateLimited, 429, "Wait ⟦as_told⟧, then repeat it."),
    (errors.QuotaExceeded, 409, "Delete data sets or wait for jobs to end; the operator sets the quotas."),
    (errors.StaleLease, 409, "Nothing to do: the worker that holds the job now goes on with it."),
    (errors.JobStopped, None, "Nothing to do: the job was cancelled. Its charges stay."),
    (errors.LedgerCorrupt, 500, "Tell the operator: the account is frozen until the database is restored or repaired."),
    (
        errors.OutOfMemory,
        None,
        "Use fewer or smaller teachers, smaller batches, or a larger machine. What was charged stays charged.",
    ),
    (
        errors.ContributionFailed,
        None,
        "Submit the job with another method or preset, or ask the operator to try this method on public records.",
    ),
    (
        errors.StoreUnavailable,
        503,
        "Repeat later. If the error persists, the operator should look at the database and its disk.",
    ),
    (errors.FileDamaged, 503, "Tell the operator: the object has to be restored, or the upload repeated."),
    (errors.ReportIncomplete, 500, "Tell the operator: a file of this job was damaged or replaced."),
    (errors.CheckpointMismatch, None, "Submit the job again; its checkpoint cannot be used."),
    (
        errors.WorkerUnavailable,
        503,
        "Repeat later. If the error persists, the operator has to install the package that it names.",
    ),
    (errors.DatalensError, 500, "Report it to the operator with ⟦trace⟧."),
)

_OTHERS: Final = (
    ProblemType(
        "malformed-request",
        "Malformed request",
        400,
        "The request breaks the rules of HTTP or of its media type.",
        "⟦send_as_described⟧.",
    ),
    ProblemType(
        "method-not-allowed",
        "Method not allowed",
        405,
        "The path exists but does not take this method.",
        "⟦use_allowed⟧.",
    ),
    ProblemType(
        "request-timeout",
        "The request came too slowly",
        408,
        "The body of the request did not come in time: 30 seconds for JSON, 60 seconds without a byte of a file.",
        "Send it again. Of a resumable upload, what had arrived is kept.",
    ),
    ProblemType(
        "payload-too-large",
        "Request body too large",
        413,
        "The body is longer than this service accepts.",
        "Send less, or ask the operator to raise ⟦DATALENS_MAX_UPLOAD_BYTES⟧.",
    ),
    ProblemType(
        "unsupported-media-type",
        "Unsupported media type",
        415,
        "The body is of another media type than this operation takes.",
        "⟦send_media_type⟧.",
    ),
    ProblemType(
        "range-not-satisfiable",
        "Range not satisfiable",
        416,
        "The request asks for bytes behind the end of the file.",
        "⟦ask_range⟧.",
    ),
    ProblemType(
        "worker-lost",
        "The worker was lost",
        None,
        "The worker process died repeatedly without an error, most likely out of memory.",
        "Free memory and submit the job again. What was charged stays charged.",
    ),
)


def _meaning(error: type[errors.DatalensError]) -> str:
    if error is errors.DatalensError:
        return "The service made a mistake. The operation did not take effect."
    return (error.__doc__ or "").partition("\n")[0]


def _all() -> Iterator[ProblemType]:
    for error, status, remedy in _OF_ERRORS:
        yield ProblemType(error.slug, error.title, status, _meaning(error), remedy)
    yield from _OTHERS


PROBLEM_TYPES: Final[dict[str, ProblemType]] = {problem.slug: problem for problem in _all()}
"""By slug."""

INTERNAL: Final = PROBLEM_TYPES[errors.DatalensError.slug]

BY_STATUS: Final[dict[int, ProblemType]] = {
    problem.status: problem
    for problem in (*_OTHERS, *(PROBLEM_TYPES[error.slug] for error in (errors.NotFound, errors.Unauthorized)))
    if problem.status is not None
}
"""Problems by status, for errors of the framework, which have nothing else."""
