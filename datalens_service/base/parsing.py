"""Text to numbers and JSON where a slip cannot be taken back, and ε, δ and μ to text: one notation each.

Python's own readers accept more than a person means: `float("1_0")` is 10, `int("٣")` is 3, `json.loads` lets the last
of two equal members win and knows NaN.
"""

import json
import math
import re
from decimal import Decimal
from typing import Any, Final, NoReturn

Path = tuple[str | int, ...]

NUL: Final = "\0"
"""The character NUL, which no text may have: databases end one there, or refuse it."""

_DECIMAL: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SMALLEST_PLAIN_EXPONENT: Final = -4
_WHOLE: Final = re.compile(r"-?[0-9]+")
_FLAGS: Final = {"true": True, "false": False}


class RefusedMember(ValueError):
    """A part of a JSON document that two readers could understand differently, or that no database keeps.

    Args:
        path: Path of the part: names of members and numbers of elements.
        code: `duplicate_member`, `finite_number` or `nul_character`.
    """

    def __init__(self, path: Path, code: str, sentence: str) -> None:
        super().__init__(f"{'.'.join(map(str, path))}: {sentence}")
        self.path = path
        self.code = code


def decimal_number(text: str) -> float:
    """Read a number in plain decimal notation: `12`, `-0.5`, `.5`, `1e-5`.

    Raises:
        ValueError: The notation is another one, or the number is too large for a double.
    """
    if not _DECIMAL.fullmatch(text) or not math.isfinite(number := float(text)):
        raise ValueError("Must be a number in plain decimal notation, for example 0.5 or 1e-5.")
    return number


def decimal_text(number: float) -> str:
    """Return the shortest decimal that reads back as this number: `0.05`, `12.3457`, `1e-5`.

    It rounds nothing: a number that was rounded where it was computed is shown as it was rounded, and one that somebody
    typed as it was typed.
    """
    if not math.isfinite(number):
        return str(float(number))
    # Adding 0 turns -0.0 into 0.0.
    exact = Decimal(repr(float(number) + 0.0)).normalize()
    if exact.adjusted() >= _SMALLEST_PLAIN_EXPONENT:
        return f"{exact:f}"
    mantissa = exact.scaleb(-exact.adjusted())
    return f"{mantissa:f}e{exact.adjusted()}"


class PrivacyParameter(float):
    """An ε, δ or μ, which is shown by `decimal_text` unless a format is named.

    This product names none, which its tests check; programs of others may.
    """

    def __str__(self) -> str:
        return decimal_text(self)

    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if spec else decimal_text(self)


def spell_number(value: Any) -> Any:
    """Format a float by `decimal_text` for templates and tables; anything else is returned unchanged."""
    return decimal_text(value) if isinstance(value, float) else value


def whole_number(text: str) -> int:
    """Read a whole number in decimal digits.

    Raises:
        ValueError: The notation is another one.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError("Must be a whole number in decimal digits.")
    return int(text)


def flag(text: str) -> bool:
    """Read `true` or `false`, in upper or lower case.

    Raises:
        ValueError: It is another word.
    """
    if (word := text.lower()) not in _FLAGS:
        raise ValueError("Must be true or false.")
    return _FLAGS[word]


def json_value(content: str | bytes) -> Any:
    """Read a JSON document whose members are distinct, whose numbers are finite and whose texts have no NUL.

    Raises:
        RefusedMember: A member occurs twice in its object, a number is not finite, or a text has a NUL.
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    return _checked(json.loads(content, object_pairs_hook=_Members), ())


class _Members(list[tuple[str, Any]]):
    """Members of an object in the order in which they were sent."""


def _checked(value: Any, path: Path) -> Any:
    if isinstance(value, _Members):
        return _object(value, path)
    if isinstance(value, list):
        return [_checked(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        _refuse(path, "finite_number", "Must be a finite number.")
    if isinstance(value, str) and NUL in value:
        _refuse(path, "nul_character", "Must not have the character NUL.")
    return value


def _object(members: _Members, path: Path) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in members:
        if name in made:
            _refuse((*path, name), "duplicate_member", "Occurs twice in its object; send it once.")
        _checked(name, path)
        made[name] = _checked(value, (*path, name))
    return made


def _refuse(path: Path, code: str, sentence: str) -> NoReturn:
    raise RefusedMember(path, code, sentence)
