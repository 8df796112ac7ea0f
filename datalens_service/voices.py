"""Names of fields and options in the words of the interface that a reader uses.

An error that begins on a page speaks of fields of the page, one over REST of members, one at a terminal of options.
Texts name such a thing as `⟦records_per_unit⟧`; `speak` writes it out in the voice of whoever reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Final, NamedTuple


class Voice(StrEnum):
    """Through which interface a text is read."""

    REST = "rest"
    """Members of JSON and of forms; arguments of Python have the same names."""
    PAGE = "page"
    """Fields of the web pages."""
    COMMAND_LINE = "command-line"
    """Options of `datalens`."""


class Term(NamedTuple):
    """One thing under its three names."""

    rest: str
    page: str
    command_line: str


def _member(name: str, page: str, command_line: str | None = None) -> Term:
    """A member of REST that is an option of the same name, unless another one is given."""
    return Term(name, f"“{page}”", command_line or f"--{name.replace('_', '-')}")


TERMS: Final[dict[str, Term]] = {
    "records_per_unit": _member("records_per_unit", "Most images of one"),
    "classes_per_unit": _member("classes_per_unit", "Most classes of one"),
    "unit": _member("unit", "Word for one"),
    "class_names": _member("class_names", "Names of the classes"),
    "confirmation": Term(
        "POST /v1/datasets/{dataset_id}:confirm", "the page of the data set", "`datalens datasets confirm`"
    ),
    "epsilon": _member("epsilon", "Lifetime privacy budget ε"),
    "delta": _member("delta", "δ"),
    "account": _member("account", "Share the budget of"),
    "leave_out_constant_images": _member("leave_out_constant_images", "Leave out images of a single colour"),
    "prepare_size": _member("prepare_size", "Size"),
    "prepare_window": _member("prepare_window", "Values shown"),
}
"""Every name that a text may use in `⟦…⟧`."""

HEADER: Final = "Datalens-Voice"
"""Request header with which a client says in which voice it wants its errors."""

_TOKEN: Final = re.compile(r"⟦(\w+)⟧")
_voice: ContextVar[Voice] = ContextVar("voice", default=Voice.REST)


def speak(text: str) -> str:
    """The text with all names written out in the voice of whoever reads it now; unknown ones stay as they are.

    Args:
        text: With names as `⟦name⟧`.
    """
    voice = _voice.get()
    return _TOKEN.sub(lambda found: _name(found[1], voice), text)


def set_voice(voice: Voice) -> None:
    """From now on, texts in this context are read through another interface."""
    _voice.set(voice)


@contextmanager
def spoken_to(voice: Voice) -> Iterator[None]:
    """Within the block, texts are read through another interface."""
    token = _voice.set(voice)
    try:
        yield
    finally:
        _voice.reset(token)


def _name(name: str, voice: Voice) -> str:
    term = TERMS.get(name)
    if term is None:
        return name
    names = {Voice.REST: term.rest, Voice.PAGE: term.page, Voice.COMMAND_LINE: term.command_line}
    return names[voice]
