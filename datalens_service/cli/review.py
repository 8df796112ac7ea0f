"""Asks the person at the terminal, on stderr, before something becomes public, is spent or ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

import typer

from datalens_service.base.errors import InvalidInput
from datalens_service.cli import output
from datalens_service.client import ClientError

if TYPE_CHECKING:
    from datalens_service.client import ImageSchema, NoticeInfo, ReviewInfo
    from datalens_service.data.notices import Notice
    from datalens_service.services.upload_reports import ClassReview

PRIVATE_READS = ("reading the upload",)

_TITLE: Final = "The class names are not confirmed"
_NOBODY: Final = "Nobody can answer here, so nothing was done: add --yes if you mean it."


def require(review: ReviewInfo | ClassReview, otherwise: str, problem: Mapping[str, Any] | None = None) -> None:
    """Show a review on stderr and go on only if the person at the terminal says so.

    Args:
        otherwise: The situation and the remedy, for a refusal unless somebody says yes.

    Raises:
        ClientError: They say no, or there is nobody to ask.
    """
    _say(review)
    question = f"Publish these {len(review.classes):,} class names and open the budget?"
    if not answer(question):
        raise ClientError("state-conflict", _TITLE, otherwise, problem=dict(problem or {}))


def skip() -> None:
    """Instead of asking, for class names that were confirmed or declared beforehand."""


def describe(read: ReviewInfo | ClassReview | ImageSchema) -> dict[str, object]:
    """Describe what was read, or declared public, beside the classes."""
    each = f", each with at most {read.records_per_unit} images" if read.records_per_unit > 1 else ""
    size = f"{read.width}×{read.height}×{read.channels}"
    # Brings scipy, which commands that ask nothing do not need.
    from datalens_service.privacy.guarantee import PrivacyUnit

    protected = PrivacyUnit(read.unit, read.records_per_unit).write_count(read.num_units)
    return {"protected": f"{protected}{each}", "images": size}


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


def confirm(question: str, *, yes: bool) -> None:
    """Ask the person at the terminal, unless they have answered already.

    Raises:
        InvalidInput: The answer is no, or there is nobody to ask.
    """
    said = True if yes else answer(question)
    if said is None:
        raise InvalidInput(f"{question} {_NOBODY}")
    if not said:
        raise InvalidInput("You did not say yes, so nothing was done.")


def confirm_name(name: str, *, yes: bool) -> None:
    """Have the person at the terminal type the name of what they remove, unless they have answered already.

    Raises:
        InvalidInput: The name is another, or there is nobody to ask.
    """
    if yes:
        return
    lost = f"{name} would be removed, and this cannot be undone."
    if not _at_terminal():
        raise InvalidInput(f"{lost} {_NOBODY}")
    typer.echo(f"{lost} Type its name to remove it: ", nl=False, err=True)
    if sys.stdin.readline().strip() != name:
        raise InvalidInput("This is not its name, so nothing was done.")


def accept_low_utility(warning: Callable[[], str]) -> bool:
    """Ask the person at the terminal before budget is spent on a result of little use; True if they said yes.

    Args:
        warning: Warning of the plan; empty if the job is of use.

    Raises:
        InvalidInput: The answer is no.
    """
    if not _at_terminal():
        return False
    said = warning()
    if said and not answer(f"{said} Spend budget on it anyway?"):
        raise InvalidInput("You did not say yes, so nothing was done.")
    return bool(said)


def answer(question: str) -> bool | None:
    """Return True if the person at the terminal says yes; None if there is nobody to ask.

    Args:
        question: Asked on stderr, since a program may read stdout.
    """
    if not _at_terminal():
        return None
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _at_terminal() -> bool:
    return _is_terminal(sys.stdin) and _is_terminal(sys.stderr)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
