"""Shapes of uploads, their validation and their deletion."""

from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from datalens_service.api.schemas.common import DatasetRead, NumberedPage
from datalens_service.base.fields import PRINTABLE, Number, Strict, copied
from datalens_service.base.wording import spoken
from datalens_service.client.models import UploadInfo
from datalens_service.data.intake.sandbox.exchange import Counts
from datalens_service.data.intake.untrusted.validation_errors import BadFile
from datalens_service.data.notices import Notice
from datalens_service.proof.hash_chain import Entry
from datalens_service.proof.spenders import Spender
from datalens_service.services.dataset_declaration import IDENTIFIER, BudgetForm, DatasetForm
from datalens_service.services.upload_reports import ClassReview
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.datasets.upload_sessions import PartialUpload
from datalens_service.store.datasets.uploads import Joined, StoredUpload
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.ledger.account_summary import AccountSummary

OWNER_ONLY: Final = "Private: it depends on the records. Do not pass it on."


class UploadRead(UploadInfo):
    """A file that arrives in chunks."""

    @classmethod
    def from_upload(cls, upload: PartialUpload) -> Self:
        return copied(cls, upload, offset=upload.received)


class DatasetRequest(DatasetForm):
    """A dataset from an upload that came in chunks."""

    model_config = ConfigDict(extra="forbid", title="DatasetRequest")

    upload_id: str = Field(max_length=64, pattern=IDENTIFIER, description="A complete upload.")

    @property
    def form(self) -> DatasetForm:
        return DatasetForm.model_validate(self.model_dump(exclude={"upload_id"}))


def _only_true(value: object) -> object:
    if value is not True:
        raise PydanticCustomError("literal_error", "Must be {expected}.", {"expected": "true"})
    return value


class ConfirmationRequest(BudgetForm):
    """Confirms that the class names of an upload may become public.

    The budget is the declared one. As soon as one of its three members is named, also as null, the three replace it.
    """

    model_config = ConfigDict(extra="forbid")

    confirm_classes: Annotated[Literal[True], BeforeValidator(_only_true)] = Field(
        description="true: the class names that `review` lists may become public, for good."
    )


_REVIEW: Final = f"What there is to confirm, while the upload waits for it. {OWNER_ONLY}"
_NOTICES: Final = f"What was read in a way that the owner may not expect. {OWNER_ONLY}"


class UploadedDataset(DatasetRead):
    """A dataset as whoever has just uploaded it sees it."""

    notices: list[Notice] = Field(default=[], description=_NOTICES)
    review: ClassReview | None = Field(default=None, description=_REVIEW)

    @classmethod
    def from_upload(cls, upload: DatasetView, statement: AccountSummary | None, validation: StoredUpload) -> Self:
        """Return what the owner sees of an upload; `statement` of one that is ready."""
        found = ValidationRead.from_upload(validation)
        shown = cls.from_view(upload, statement, found.joined)
        return shown.model_copy(update={"notices": found.notices, "review": found.review})


class ValidationRead(BaseModel):
    """The result of reading an upload, for the owner of the data alone."""

    dataset_id: str
    state: DatasetState
    created_at: datetime
    finished_at: datetime | None
    audience: Literal["owner"] = Field(default="owner", description=OWNER_ONLY)
    counts: Counts | None = Field(default=None, description="Records by split and class; pixels that occur again.")
    notices: list[Notice] = Field(default=[], description=_NOTICES)
    review: ClassReview | None = Field(default=None, description=_REVIEW)
    joined: Joined | None = Field(default=None, description="The account that it joined, if records of it were known.")
    code: str | None = Field(default=None, description="Type of the problem with an upload that cannot be used.")
    detail: str | None = Field(default=None, description="What to change.")
    bad_files: list[BadFile] = Field(default=[], description="The first 1,000 files that cannot be used.")
    bad_count: int = Field(default=0, description="Files that cannot be used.")
    checked: int = Field(default=0, description="Files that were looked at.")

    @classmethod
    def from_upload(cls, validation: StoredUpload) -> Self:
        report = {} if validation.report is None else validation.report.for_owner()
        return copied(cls, validation, **spoken(report))


class DeletionReceipt(BaseModel):
    """Lists what was removed and what stays; `entry` can be found in the journal of the account."""

    dataset_id: str
    deleted_at: datetime
    removed: list[str] = Field(description="List of what is gone.")
    kept: list[str] = Field(description="What stays because it was released or spent.")
    account_id: str | None = Field(
        description="The account whose journal notes the deletion; null if there never was a budget."
    )
    entry: Entry | None = Field(description="The entry that notes it, sealed by SHA-256.")

    @classmethod
    def from_view(cls, removed: DatasetView, entry: Entry | None) -> Self:
        """The receipt of a deletion."""
        dataset = removed.contents
        return copied(
            cls,
            removed,
            dataset_id=removed.id,
            removed=_REMOVED if dataset else _REMOVED_UNREAD,
            kept=_KEPT if dataset else [],
            account_id=dataset and dataset.account_id,
            entry=entry,
        )


_REMOVED: Final = [
    "the records",
    "the key that assigns records to shards",
    "the report on the upload",
    "reports and other files for the owner alone",
]
_REMOVED_UNREAD: Final = ["the upload", "the report on it"]
_KEPT: Final = [
    "the account with its journal: spent budget stays spent",
    "keyed fingerprints of the records, so that the same records keep their account",
    "what jobs have released",
]


Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=1000), PRINTABLE]


class EntryPage(NumberedPage[Entry]):
    """A page of the journal, oldest first."""

    spenders: list[Spender] = Field(
        description="Who submitted each job of these entries, for keys with `audit:read`; null where it was not "
        "recorded. Empty for other keys. No seal covers it: the audit journal seals who submitted what."
    )


class RaiseRequest(Strict):
    """A larger lifetime budget, and why."""

    epsilon: Number = Field(gt=0, le=100, description="New ε of the whole lifetime, above the present one.")
    reason: Reason = Field(description="Why, and who agreed, for readers of the audit journal.")
