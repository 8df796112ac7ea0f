"""What was read is shown, and a person asked, before class names become public and a budget opens."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from datalens_service.cli import output
from datalens_service.client import ClientError

_TITLE: Final = "The class names are not confirmed"


class ClassLike(Protocol):
    """A class with the number of its images. Private."""

    @property
    def name(self) -> str:
        """As it would be published."""

    @property
    def train(self) -> int:
        """Images to train on."""

    @property
    def test(self) -> int:
        """Images to test on."""


class ReviewLike(Protocol):
    """How images were read, by a service or on this machine. Private."""

    @property
    def classes(self) -> Sequence[ClassLike]:
        """In the order of the labels."""

    @property
    def unit(self) -> str:
        """What the guarantee protects."""

    @property
    def num_units(self) -> int:
        """How many of them there are."""

    @property
    def records_per_unit(self) -> int:
        """Most training images of one."""

    @property
    def width(self) -> int:
        """In pixels."""

    @property
    def height(self) -> int:
        """In pixels."""

    @property
    def channels(self) -> int:
        """1 is grey."""

    @property
    def ignored_files(self) -> int:
        """Files that were not read."""

    @property
    def message(self) -> str:
        """What a confirmation means."""


def require(review: ReviewLike, otherwise: str, problem: Mapping[str, Any] | None = None) -> None:
    """Show a review on stderr and go on only if the person at the terminal says so.

    Args:
        review: What was read.
        otherwise: What is the case, and what to do, unless somebody says yes.
        problem: Members of the problem document then.

    Raises:
        ClientError: They say no, or there is nobody to ask.
    """
    _say(review)
    question = f"Publish these {len(review.classes):,} class names and open the budget?"
    if not (_at_terminal() and _says_yes(question)):
        raise ClientError("state-conflict", _TITLE, otherwise, problem=dict(problem or {}))


def skip() -> None:
    """Instead of asking, for class names that were confirmed or declared beforehand."""


def describe(review: ReviewLike) -> dict[str, object]:
    """What was read, beside the classes."""
    each = f", each with at most {review.records_per_unit} images" if review.records_per_unit > 1 else ""
    return {
        "unit": f"{review.num_units:,} × {review.unit}{each}",
        "images": f"{review.width}×{review.height}×{review.channels}",
        "files ignored": f"{review.ignored_files:,}",
    }


def _say(review: ReviewLike) -> None:
    rows = [(each.name, f"{each.train:,}", f"{each.test:,}") for each in review.classes]
    output.say(output.format_table(("class", "train", "test"), rows))
    output.say(output.format_facts(describe(review)))
    output.say(review.message)


def _says_yes(question: str) -> bool:
    """Asked on stderr: what is on stdout may be read by a program."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
