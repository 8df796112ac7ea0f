"""Every type of problem the API answers with: its status, what it means and what to do about it.

`/problems/{slug}`, `docs/problems.md` and the OpenAPI document are made from this list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from datalens_service import errors


@dataclass(frozen=True)
class ProblemType:
    """One type of problem.

    Attributes:
        slug: Last part of the type URI, also the member `code`; never changes its meaning.
        title: The same for every occurrence.
        status: HTTP status; None for problems that only stand on a job.
        meaning: What happened.
        remedy: What to do about it.
    """

    slug: str
    title: str
    status: int | None
    meaning: str
    remedy: str

    @property
    def uri(self) -> str:
        """RFC 9457 `type` within the service."""
        return f"/problems/{self.slug}"


_OF_ERRORS: Final[tuple[tuple[type[errors.DatalensError], int | None, str], ...]] = (
    (errors.InvalidInput, 422, "Correct the members named in `errors`, or what `detail` says, and send it again."),
    (errors.InvalidSpec, 422, "Change the training request as `detail` says. `POST /v1/plans` tries it out for free."),
    (errors.InvalidDelta, 422, "Leave delta out: the dataset's own is used. It must lie below 1/n."),
    (errors.InfeasiblePlan, 422, "Raise epsilon, or make a step cheaper as `detail` says. Nothing was spent."),
    (errors.InvalidDataset, 422, "Change the file as `detail` says and upload it again. Nothing was kept of it."),
    (errors.BudgetExceeded, 409, "Ask for at most `budget.epsilon_remaining`. Spent budget does not come back."),
    (errors.NotFound, 404, "Check the id, or list what there is."),
    (errors.StateConflict, 409, "Read the object again and do what its state allows."),
    (errors.UploadOffsetMismatch, 409, "Ask with HEAD how much is there, and go on from `Upload-Offset`."),
    (errors.UploadLocked, 423, "Wait until the other request has ended, then ask with HEAD how much is there."),
    (errors.ChecksumMismatch, 460, "Send the chunk again. Nothing of it was kept."),
    (errors.ProtocolMismatch, 412, "Send the header `Tus-Resumable: 1.0.0`; tus clients and the Python client do."),
    (
        errors.InsufficientStorage,
        503,
        "Tell the operator: the disk that `detail` names is full. Of a resumable upload, what had arrived is kept.",
    ),
    (errors.Unauthorized, 401, "Send `Authorization: Bearer dlk_…` with a key that was not revoked."),
    (errors.Forbidden, 403, "Use a key with the scope that `detail` names, or ask for a new address."),
    (errors.RateLimited, 429, "Wait for as many seconds as `Retry-After` says."),
    (errors.StaleLease, 409, "Nothing to do: the worker that holds the job now goes on with it."),
    (errors.JobStopped, None, "Nothing to do: the job was cancelled. What it charged stays charged."),
    (errors.LedgerCorrupt, 500, "Tell the operator: the account is frozen until the database is restored or repaired."),
    (errors.StoreUnavailable, 503, "Repeat later. If it stays, the operator looks at the database and its disk."),
    (
        errors.ReportIncomplete,
        500,
        "Tell the operator: a file of this job was damaged or replaced.",
    ),
    (errors.CheckpointMismatch, None, "Submit the job again; its checkpoint cannot be used."),
    (errors.WorkerUnavailable, 503, "Repeat later. If it stays, the operator installs what `detail` names."),
    (errors.DatalensError, 500, "Report it to the operator with the value of `instance`."),
)

_OTHERS: Final = (
    ProblemType(
        "malformed-request",
        "Malformed request",
        400,
        "The request breaks the rules of HTTP or of its media type.",
        "Send it as the API description says; curl and the Python client do.",
    ),
    ProblemType(
        "method-not-allowed",
        "Method not allowed",
        405,
        "The path exists and does not know this method.",
        "Use one of the methods in the `Allow` header.",
    ),
    ProblemType(
        "payload-too-large",
        "Request body too large",
        413,
        "The body is longer than this service accepts.",
        "Send less, or ask the operator to raise DATALENS_MAX_UPLOAD_BYTES.",
    ),
    ProblemType(
        "unsupported-media-type",
        "Unsupported media type",
        415,
        "The body is of another media type than this operation takes.",
        "Send JSON as application/json, and uploads as multipart/form-data (curl: -F).",
    ),
    ProblemType(
        "range-not-satisfiable",
        "Range not satisfiable",
        416,
        "The Range header asks for bytes behind the end of the file.",
        "Ask for a range within the length that Content-Range names, or leave the header out.",
    ),
    ProblemType(
        "out-of-memory",
        "The machine's memory does not suffice",
        None,
        "The job needed more memory than its worker has.",
        "Use fewer or smaller teachers, smaller batches, or a larger machine. What was charged stays charged.",
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
        return "The service made a mistake. What it was doing did not happen."
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
"""For errors the framework raises, which have a status and nothing else."""


def as_markdown() -> str:
    """All problem types as the page `docs/problems.md`."""
    lines = [
        "# Problems",
        "",
        "Every error is `application/problem+json` (RFC 9457). `type` is one of the URIs below, relative to the",
        "service, which answers there with the same text; `code` is its last part; `instance` names the request in",
        "the log. Types are stable: programs may branch on them. This page is written by `scripts/openapi`.",
        "",
    ]
    for problem in PROBLEM_TYPES.values():
        status = f"Status {problem.status}." if problem.status else "On a job only, as its `error`."
        lines += [f"## {problem.slug}", "", f"{problem.title}. {status}", ""]
        lines += [problem.meaning, "", f"*What to do:* {problem.remedy}", ""]
    return "\n".join(lines)
