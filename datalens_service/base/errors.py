"""Every error this product raises on purpose.

    DatalensError > InvalidInput > InvalidSpec > InvalidDelta, InfeasiblePlan, LowUtility,
                                                 UnreachableAccuracy
                    InvalidInput > InvalidDataset > PersonsInBothSplits
                    StoreUnavailable > InsufficientStorage
                    WorkerUnavailable > RankLost
                    all others

Each class carries the `slug` and `title` of its RFC 9457 problem type; `api/problems/problem_types.py` adds the
status and the advice.
A `detail` says what to change and never contains a private value. It names fields and options as `⟦name⟧`
(`wording.py`), so that each reader gets the words of the interface in front of them.
"""

from typing import Any, ClassVar

from datalens_service.base.wording import speak


class DatalensError(Exception):
    """Base of all deliberate errors.

    Args:
        text: One sentence for the person who caused it: what is wrong and what to change.
        extra: Public members added to the problem document, for example a budget.

    Attributes:
        text: The sentence as it is kept, for a reader who is not known yet.
    """

    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"

    def __init_subclass__(cls, *, slug: str = "", title: str = "") -> None:
        """Register a kind of error; one without a problem type of its own has that of its base."""
        cls.slug, cls.title = slug or cls.slug, title or cls.title

    def __init__(self, text: str, *, extra: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.extra: dict[str, Any] = extra or {}

    def __str__(self) -> str:
        return self.detail

    @property
    def detail(self) -> str:
        """Return the sentence in the words of the interface that its reader uses."""
        return speak(self.text)


class InvalidInput(DatalensError, slug="invalid-input", title="Invalid input"):
    """The request, or a file that was sent with it, cannot be used."""


class InvalidSpec(InvalidInput, slug="invalid-spec", title="Invalid training request"):
    """A training request contradicts itself or its data set."""


class InvalidDelta(InvalidSpec, slug="invalid-delta", title="δ does not fit this data set"):
    """δ must lie below 1/n, or the guarantee permits publishing whole records."""


class InfeasiblePlan(InvalidSpec, slug="epsilon-infeasible", title="The budget does not pay for one step"):
    """The named budget does not pay for a single step of the method."""


class LowUtility(InvalidSpec, slug="low-utility", title="Of little use at this budget"):
    """At this budget noise drowns what images of a class have in common, and the request does not accept that."""


class UnreachableAccuracy(InvalidSpec, slug="accuracy-unreachable", title="Accuracy too high"):
    """No ε is expected to reach the wanted accuracy."""


class InvalidDataset(InvalidInput, slug="dataset-invalid", title="Not a usable labelled image set"):
    """An upload is not a usable labelled image set."""


class PersonsInBothSplits(
    InvalidDataset, slug="persons-in-both-splits", title="The same persons have training and test images"
):
    """Test images that should show other persons show persons who have training images."""


class BudgetExceeded(DatalensError, slug="privacy-budget-exceeded", title="Privacy budget exceeded"):
    """The remaining privacy budget does not cover the request."""


class NotFound(DatalensError, slug="not-found", title="Not found"):
    """No such object, or not visible to this key."""


class StateConflict(DatalensError, slug="state-conflict", title="The object's state forbids this"):
    """The object is in a state that forbids the operation."""


class UploadOffsetMismatch(
    DatalensError, slug="upload-offset-mismatch", title="The piece does not begin where the upload ends"
):
    """The piece does not begin where the upload ends."""


class UploadLocked(DatalensError, slug="upload-locked", title="The upload is in use"):
    """Another request is adding to this upload."""


class ChecksumMismatch(DatalensError, slug="checksum-mismatch", title="The checksum does not match"):
    """The piece does not match its checksum; nothing of it was kept."""


class ProtocolMismatch(DatalensError, slug="upload-protocol", title="Another version of the upload protocol"):
    """The request does not name the version of the upload protocol that this service speaks."""


class Unauthorized(DatalensError, slug="unauthorized", title="A valid API key is needed"):
    """The request carries no valid API key."""


class Forbidden(DatalensError, slug="forbidden", title="Not allowed"):
    """The API key or the signed address does not allow this."""


class RateLimited(DatalensError, slug="rate-limited", title="Too many requests"):
    """The API key sends more requests than it may."""


class QuotaExceeded(DatalensError, slug="quota-exceeded", title="The quota of the tenant is used up"):
    """The tenant has as much as the operator lets it have at once."""


class StaleLease(DatalensError, slug="stale-lease", title="The job was taken over"):
    """Another worker holds the job now."""


class JobStopped(DatalensError, slug="job-stopped", title="The job was stopped on request"):
    """A cancel request was seen between two steps."""


class LedgerCorrupt(DatalensError, slug="ledger-corrupt", title="The privacy ledger failed its check"):
    """The privacy account contradicts itself; nothing may be released from it."""


class OutOfMemory(DatalensError, slug="out-of-memory", title="The machine's memory does not suffice"):
    """The job needs more memory than its worker has."""


class ContributionFailed(DatalensError, slug="contribution-failed", title="A computation over private records failed"):
    """A computation over private records failed; its own error may depend on them, and is dropped."""


class StoreUnavailable(DatalensError, slug="store-unavailable", title="The database cannot do this now"):
    """The database is unreachable, full or unsafe; nothing was written."""


class InsufficientStorage(StoreUnavailable, slug="insufficient-storage", title="Not enough room on the disk"):
    """A disk has no room for it; nothing was written in part."""


class FileDamaged(DatalensError, slug="file-damaged", title="A stored file is damaged"):
    """A stored file is lost or was altered."""


class ReportIncomplete(DatalensError, slug="report-incomplete", title="The privacy report is not complete"):
    """A privacy report lacks a required part or was changed; it is not handed out."""


class CheckpointMismatch(DatalensError, slug="checkpoint-mismatch", title="The checkpoint belongs to another job"):
    """A checkpoint belongs to another job or another version of it."""


class WorkerUnavailable(DatalensError, slug="worker-unavailable", title="No worker can do this now"):
    """This machine lacks what the operation needs."""


class RankLost(WorkerUnavailable):
    """A process that shares the teachers of this job is gone; the job has not ended and can be resumed."""


class GpuMemoryTaken(WorkerUnavailable):
    """Another program has the memory of the GPU; the job has not ended and can be resumed."""
