"""The report of how an upload was read, for its owner alone; it is deleted with the data.

Its owner looks at the review before class names become public and the budget opens.
"""

from datetime import datetime
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, computed_field

from datalens_service.base.errors import DatalensError
from datalens_service.base.fields import copied
from datalens_service.data.dataset import Schema
from datalens_service.data.intake.sandbox.exchange import Counts
from datalens_service.data.intake.sandbox.sandbox import Decoded, Refused
from datalens_service.data.notices import Notice, NoticeCode, count_notices
from datalens_service.store.datasets.uploads import Joined, StoredUpload

PRIVATE_READS = ("reading the upload",)

_IGNORED: Final = (NoticeCode.IGNORED_FILES, NoticeCode.IGNORED_SPLIT, NoticeCode.UNREADABLE_LEFT_OUT)
MESSAGE: Final = (
    "Once confirmed, these class names are public for good: every card, generator and report that you pass on "
    "states them. None of them may name or number a person. Nothing is charged or published before you confirm."
)


class ReviewedClass(BaseModel):
    """A class with the number of its images."""

    model_config = ConfigDict(frozen=True)

    name: str
    train: int = Field(description="Training images.")
    test: int = Field(description="Test images.")


class ClassReview(BaseModel):
    """Says how an upload was read, for its owner to confirm. Private."""

    # `message` is computed, so it is ignored where a review is read back.
    model_config = ConfigDict(frozen=True, extra="ignore")

    classes: tuple[ReviewedClass, ...] = Field(description="Classes in the order of the labels.")
    unit: str = Field(description="Word for what the guarantee protects.")
    num_units: int = Field(description="Their number n, which becomes public as well.")
    records_per_unit: int = Field(description="Most training images of one.")
    classes_per_unit: int = Field(description="Most classes that one belongs to.")
    width: int
    height: int
    channels: int
    train_images: int
    test_images: int = Field(description="0 without a test split.")
    test_is_public: bool = Field(description="Whether the test split was declared public.")
    records_are_public: bool = Field(description="Whether all images were declared public.")
    groups_ignored: bool = Field(
        default=False, description="Whether single images are protected although the upload groups them."
    )
    ignored_files: int = Field(description="Files that were not read; `notices` name the first of them.")
    expires_at: datetime | None = Field(default=None, description="When the upload is removed unless it is confirmed.")

    @computed_field(description="What a confirmation means.")  # type: ignore[prop-decorator]
    @property
    def message(self) -> str:
        return MESSAGE

    @classmethod
    def from_counts(
        cls, schema: Schema, counts: Counts, notices: tuple[Notice, ...], expires_at: datetime | None = None
    ) -> Self:
        """List what there is to confirm of images that were read."""
        return copied(
            cls,
            schema,
            classes=_reviewed_classes(counts),
            train_images=counts.train,
            test_images=counts.test,
            ignored_files=sum(count_notices(code, notices) for code in _IGNORED),
            expires_at=expires_at,
        )


def _reviewed_classes(counts: Counts) -> tuple[ReviewedClass, ...]:
    return tuple(
        ReviewedClass(name=name, train=train, test=counts.test_classes.get(name, 0))
        for name, train in counts.classes.items()
    )


class Reading(BaseModel):
    """The report of an upload that can be used. Private.

    Attributes:
        notices: Parts that were read otherwise than the owner may expect, and shared records.
        joined: The account that pays for it, if that is one of before.
    """

    model_config = ConfigDict(frozen=True)

    format: str
    counts: Counts
    notices: tuple[Notice, ...] = ()
    review: ClassReview | None = None
    joined: Joined | None = None

    @classmethod
    def from_decoded(cls, decoded: Decoded, review: ClassReview | None = None) -> Self:
        """Build the report before there is a data set."""
        return cls(format=decoded.format, counts=decoded.counts.for_owner(), notices=decoded.notices, review=review)

    @classmethod
    def of_upload(cls, upload: StoredUpload) -> Self:
        """Read the report that was kept of an upload."""
        return cls.model_validate(upload.report and upload.report.for_owner())

    def ready(self, links: tuple[Notice, ...], joined: Joined | None) -> Self:
        """Once there is one, with what it shares."""
        return self.model_copy(update={"notices": (*self.notices, *links), "review": None, "joined": joined})


def invalid_report(error: DatalensError) -> dict[str, Any]:
    """Report on an upload that cannot be used. Private."""
    report: dict[str, Any] = {"code": error.slug, "detail": error.text}
    return report | error.validation_errors if isinstance(error, Refused) else report
