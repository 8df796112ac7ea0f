"""What was read is shown on stderr, and a person asked, before class names become public and a budget opens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from datalens_service.cli import confirmation, output
from datalens_service.client import ClientError

if TYPE_CHECKING:
    from datalens_service.client import ImageSchema, NoticeInfo, ReviewInfo
    from datalens_service.data.notices import Notice
    from datalens_service.services.upload_reports import ClassReview

PRIVATE_READS = ("reading the upload",)

_TITLE: Final = "The class names are not confirmed"


def require(review: ReviewInfo | ClassReview, otherwise: str, problem: Mapping[str, Any] | None = None) -> None:
    """Show a review on stderr and go on only if the person at the terminal says so.

    Args:
        otherwise: What is the case, and what to do, unless somebody says yes.

    Raises:
        ClientError: They say no, or there is nobody to ask.
    """
    _say(review)
    question = f"Publish these {len(review.classes):,} class names and open the budget?"
    if not confirmation.answer(question):
        raise ClientError("state-conflict", _TITLE, otherwise, problem=dict(problem or {}))


def skip() -> None:
    """Instead of asking, for class names that were confirmed or declared beforehand."""


def describe(read: ReviewInfo | ClassReview | ImageSchema) -> dict[str, object]:
    """What was read, or declared public, beside the classes."""
    each = f", each with at most {read.records_per_unit} images" if read.records_per_unit > 1 else ""
    size = f"{read.width}×{read.height}×{read.channels}"
    return {"unit": f"{read.num_units:,} × {read.unit}{each}", "images": size}


def _say(review: ReviewInfo | ClassReview) -> None:
    rows = [(each.name, f"{each.train:,}", f"{each.test:,}") for each in review.classes]
    output.say(output.format_table(("class", "train", "test"), rows))
    output.say(output.format_facts({**describe(review), "files ignored": f"{review.ignored_files:,}"}))
    output.say(review.message)


def say_notices(notices: Iterable[Notice | NoticeInfo]) -> None:
    """Print notices for the person who sent the upload."""
    for notice in notices:
        output.say(f"Notice: {format_notice(notice)}")


def format_notice(notice: Notice | NoticeInfo) -> str:
    """A notice as one line: how many, which, and what to do."""
    examples = ", ".join(notice.examples)
    more = ", …" if notice.count > len(notice.examples) else ""
    which = f" ({examples}{more})" if examples else ""
    return f"{notice.code}, {notice.count:,}{which}: {notice.message}"
