"""Options that are numbers or sizes, in plain notation only: Python itself would read `1_0` as 10."""

from collections.abc import Callable
from typing import TypeVar

import typer

from datalens_service.data.image_sizes import ImageSize, parse_size
from datalens_service.notation import decimal_number, whole_number

Parsed = TypeVar("Parsed", int, float, ImageSize)


def parse_number(value: str | float) -> float:
    """Parse a number; a default is one already."""
    return _parse(value, decimal_number) if isinstance(value, str) else value


def parse_integer(value: str | int) -> int:
    """Parse a whole number; a default is one already."""
    return _parse(value, whole_number) if isinstance(value, str) else value


def parse_image_size(value: str) -> str:
    """Check a size of images: `64` or `96x48`."""
    return str(_parse(value, parse_size))


def build_integer_parser(minimum: int, maximum: int | None = None) -> Callable[[str | int], int]:
    """A parser for whole numbers of at least `minimum` and, if there is a bound, at most `maximum`."""

    def parse_bounded(value: str | int) -> int:
        number = parse_integer(value)
        if number < minimum or (maximum is not None and number > maximum):
            bounds = f"at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"
            raise typer.BadParameter(f"Must be {bounds}.")
        return number

    return parse_bounded


def _parse(text: str, parser: Callable[[str], Parsed]) -> Parsed:
    try:
        return parser(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
