"""The question before something ends for good; the pages ask about the same things."""

import sys
from collections.abc import Callable
from typing import TextIO

import typer

from datalens_service.errors import InvalidInput


def confirm(question: str, *, yes: bool) -> None:
    """Ask the person at the terminal, unless they have answered already.

    Raises:
        InvalidInput: The answer is no, or there is nobody to ask.
    """
    said = True if yes else answer(question)
    if said is None:
        raise InvalidInput(f"{question} Nobody can be asked here, so nothing was done: add --yes if you mean it.")
    if not said:
        raise InvalidInput("You did not say yes, so nothing was done.")


def accept_low_utility(warning: Callable[[], str]) -> bool:
    """Whether somebody at the terminal was asked, before budget is spent on what is of little use, and said yes.

    Args:
        warning: What the plan says of it; empty if it is of use.

    Raises:
        InvalidInput: The answer is no.
    """
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        return False
    said = warning()
    if said and not answer(f"{said} Spend budget on it all the same?"):
        raise InvalidInput("You did not say yes, so nothing was done.")
    return bool(said)


def answer(question: str) -> bool | None:
    """Whether the person at the terminal says yes; None if there is nobody to ask.

    Args:
        question: Asked on stderr, since a program may read stdout.
    """
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        return None
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
