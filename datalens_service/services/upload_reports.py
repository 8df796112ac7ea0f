"""What is kept of how an upload was read, for its owner alone; it is deleted with the data."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from datalens_service.data.notices import Notice
from datalens_service.data.sandbox.exchange import Counts
from datalens_service.data.sandbox.sandbox import Decoded, Refused
from datalens_service.errors import DatalensError
from datalens_service.services.class_review import ClassReview
from datalens_service.store.datasets.joining import Joined


class Reading(BaseModel):
    """Of an upload that can be used. Private.

    Attributes:
        notices: What was read otherwise than the owner may expect, and what it shares.
        review: What there is to confirm; None once it is confirmed.
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
        """Before there is a data set."""
        return cls(format=decoded.format, counts=decoded.counts, notices=decoded.notices, review=review)

    def ready(self, links: tuple[Notice, ...], joined: Joined | None) -> Self:
        """Once there is one, with what it shares."""
        return self.model_copy(update={"notices": (*self.notices, *links), "review": None, "joined": joined})


def invalid_report(error: DatalensError) -> dict[str, Any]:
    """Of an upload that cannot be used. Private."""
    report: dict[str, Any] = {"code": error.slug, "detail": error.text}
    return report | error.validation_errors if isinstance(error, Refused) else report
