"""Every error this product raises on purpose.

    DatalensError > InvalidInput > InvalidSpec > InvalidDelta, InfeasiblePlan, LowUtility
                    InvalidInput > InvalidDataset
                    StoreUnavailable > InsufficientStorage
                    WorkerUnavailable > RankLost
                    all others

Each class carries the `slug` and `title` of its RFC 9457 problem type; `api/problems/handlers.py` adds the status.
A `detail` says what to change and never contains a private value. It names fields and options as `⟦name⟧`
(`voices.py`), so that each reader gets the words of the interface in front of them.
"""

from typing import Any, ClassVar

from datalens_service.voices import speak


class DatalensError(Exception):
    """Base of all deliberate errors.

    Args:
        text: One sentence for the person who caused it: what is wrong and what to change.
        extra: Public members added to the problem document, for example a budget.

    Attributes:
        text: As it is kept, for a reader who is not known yet.
    """

    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"

    def __init__(self, text: str, *, extra: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.extra: dict[str, Any] = extra or {}

    def __str__(self) -> str:
        return self.detail

    @property
    def detail(self) -> str:
        """The sentence in the words of the interface that its reader uses."""
        return speak(self.text)


class InvalidInput(DatalensError):
    """What the caller sent cannot be used."""

    slug = "invalid-input"
    title = "Invalid input"


class InvalidSpec(InvalidInput):
    """A training request contradicts itself or its data set."""

    slug = "invalid-spec"
    title = "Invalid training request"


class InvalidDelta(InvalidSpec):
    """δ must lie below 1/n, or the guarantee permits publishing whole records."""

    slug = "invalid-delta"
    title = "δ does not fit this data set"


class InfeasiblePlan(InvalidSpec):
    """The named budget does not pay for a single step of the method."""

    slug = "epsilon-infeasible"
    title = "The budget does not pay for one step"


class LowUtility(InvalidSpec):
    """At this budget noise drowns what images of a class have in common, and nobody accepted that."""

    slug = "low-utility"
    title = "Of little use at this budget"


class InvalidDataset(InvalidInput):
    """An upload is not a usable labelled image set."""

    slug = "dataset-invalid"
    title = "Not a usable labelled image set"


class BudgetExceeded(DatalensError):
    """The remaining privacy budget does not cover the request."""

    slug = "privacy-budget-exceeded"
    title = "Privacy budget exceeded"


class NotFound(DatalensError):
    """No such object, or not visible to this key."""

    slug = "not-found"
    title = "Not found"


class StateConflict(DatalensError):
    """The object is in a state that forbids the operation."""

    slug = "state-conflict"
    title = "The object's state forbids this"


class UploadOffsetMismatch(DatalensError):
    """The piece does not begin where the upload ends."""

    slug = "upload-offset-mismatch"
    title = "The piece does not begin where the upload ends"


class UploadLocked(DatalensError):
    """Another request is adding to this upload."""

    slug = "upload-locked"
    title = "The upload is in use"


class ChecksumMismatch(DatalensError):
    """The piece is not what its checksum says; nothing of it was kept."""

    slug = "checksum-mismatch"
    title = "The checksum does not match"


class ProtocolMismatch(DatalensError):
    """The request does not name the version of the upload protocol that this service speaks."""

    slug = "upload-protocol"
    title = "Another version of the upload protocol"


class Unauthorized(DatalensError):
    """The request carries no valid API key."""

    slug = "unauthorized"
    title = "A valid API key is needed"


class Forbidden(DatalensError):
    """The API key, or the signed address, does not reach that far."""

    slug = "forbidden"
    title = "Not allowed"


class RateLimited(DatalensError):
    """The API key sends more requests than it may."""

    slug = "rate-limited"
    title = "Too many requests"


class StaleLease(DatalensError):
    """Another worker holds the job now."""

    slug = "stale-lease"
    title = "The job was taken over"


class JobStopped(DatalensError):
    """A cancel request was seen between two steps."""

    slug = "job-stopped"
    title = "The job was stopped on request"


class LedgerCorrupt(DatalensError):
    """The privacy account contradicts itself; nothing may be released from it."""

    slug = "ledger-corrupt"
    title = "The privacy ledger failed its check"


class OutOfMemory(DatalensError):
    """The job needs more memory than its worker has."""

    slug = "out-of-memory"
    title = "The machine's memory does not suffice"


class StoreUnavailable(DatalensError):
    """The database is unreachable, full or unsafe; whatever was being written did not happen."""

    slug = "store-unavailable"
    title = "The database cannot do this now"


class InsufficientStorage(StoreUnavailable):
    """A disk has no room for it; nothing was half-written."""

    slug = "insufficient-storage"
    title = "Not enough room on the disk"


class FileDamaged(DatalensError):
    """A stored file is lost, or holds other bytes than were put there."""

    slug = "file-damaged"
    title = "A stored file is damaged"


class ReportIncomplete(DatalensError):
    """A privacy report lacks a required part or was changed; it is not handed out."""

    slug = "report-incomplete"
    title = "The privacy report is not complete"


class CheckpointMismatch(DatalensError):
    """A checkpoint belongs to another job or another version of it."""

    slug = "checkpoint-mismatch"
    title = "The checkpoint belongs to another job"


class WorkerUnavailable(DatalensError):
    """This machine lacks what the operation needs."""

    slug = "worker-unavailable"
    title = "No worker can do this now"


class RankLost(WorkerUnavailable):
    """A process that shares the teachers of this job is gone; the job has not ended and can be resumed."""
