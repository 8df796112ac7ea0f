"""What the owner of an upload should know of how it was read: on stderr, beside the result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from datalens_service.cli import output

if TYPE_CHECKING:
    from datalens_service.client import NoticeInfo
    from datalens_service.data.notices import Notice


def say(notices: Iterable[Notice | NoticeInfo]) -> None:
    """Print notices for the person who sent the upload."""
    for notice in notices:
        output.say(f"Notice: {format_notice(notice)}")


def format_notice(notice: Notice | NoticeInfo) -> str:
    """A notice as one line: how many, which, and what to do."""
    examples = ", ".join(notice.examples)
    more = ", …" if notice.count > len(notice.examples) else ""
    which = f" ({examples}{more})" if examples else ""
    return f"{notice.code}, {notice.count:,}{which}: {notice.message}"
