"""Options that are numbers, in plain notation only: Python itself would read `1_0` as 10."""

from __future__ import annotations

from collections.abc import Callable

import typer

from datalens_service.notation import decimal_number, whole_number


def number(value: str | float) -> float:
    """A number as it was typed; a default is one already.

    Raises:
        typer.BadParameter: It is not in plain decimal notation.
    """
    if not isinstance(value, str):
        return value
    try:
        return decimal_number(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def integer(value: str | int) -> int:
    """A whole number as it was typed.

    Raises:
        typer.BadParameter: It is not one in decimal digits.
    """
    if not isinstance(value, str):
        return value
    try:
        return whole_number(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def integer_from(least: int, most: int | None = None) -> Callable[[str | int], int]:
    """A reader of whole numbers of at least `least` and, if there is a bound, at most `most`."""

    def read(value: str | int) -> int:
        number = integer(value)
        if number < least or (most is not None and number > most):
            bounds = f"at least {least}" if most is None else f"between {least} and {most}"
            raise typer.BadParameter(f"Must be {bounds}.")
        return number

    return read
