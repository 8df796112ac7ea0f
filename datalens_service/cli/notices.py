"""What the owner of an upload should know of how it was read: on stderr, beside the result."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from datalens_service.cli import output


class NoticeLike(Protocol):
    """A notice, of the service or of a reader on this machine. Private."""

    @property
    def code(self) -> str:
        """Stable."""

    @property
    def count(self) -> int:
        """How many files, images, arrays or classes it concerns."""

    @property
    def message(self) -> str:
        """What it means and what to do."""

    @property
    def examples(self) -> Sequence[str]:
        """The first of them."""


def say(notices: Iterable[NoticeLike]) -> None:
    """Print notices for the person who sent the upload."""
    for notice in notices:
        output.say(f"Notice: {format_notice(notice)}")


def format_notice(notice: NoticeLike) -> str:
    """A notice as one line: how many, which, and what to do."""
    examples = ", ".join(notice.examples)
    more = ", …" if notice.count > len(notice.examples) else ""
    which = f" ({examples}{more})" if examples else ""
    return f"{notice.code}, {notice.count:,}{which}: {notice.message}"
