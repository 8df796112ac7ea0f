"""Companies of extremes: what a record, or a unit, may stand beside without that any bit of its row changes.

A choice made from all rows of a call shows where these are of one kind, of no kind, or many. There is one table of
kinds for images, and one for numbers that were made of them.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.mechanisms.private_records import Rows

INK: Final = 0.2

Values = NDArray[Any]
Make = Callable[[np.random.Generator, tuple[int, ...]], Values]


def _any(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    return rng.integers(0, 256, shape)


def _grey(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """As photographs without colour, also where there is room for it."""
    return np.repeat(rng.integers(90, 166, (*shape[:-1], 1)), shape[-1], axis=-1)


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Strokes on black."""
    return np.where(rng.random(shape) < INK, 255, 0)


def _inverted(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Strokes on white."""
    return 255 - _drawn(rng, shape)


def _binary(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """0 and 1, as masks are stored."""
    return rng.integers(0, 2, shape)


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """About anything but the origin, so that a mean shows."""
    return rng.normal(0.7, 1.0, size=shape)


def _constant(value: float) -> Make:
    return lambda _rng, shape: np.full(shape, value)


IMAGES: Final[dict[str, Make]] = {
    "any": _any,
    "white": _constant(255),
    "drawn": _drawn,
    "binary": _binary,
    "black": _constant(0),
    "grey": _grey,
    "inverted": _inverted,
}
NUMBERS: Final[dict[str, Make]] = {
    "any": _normal,
    "zero": _constant(0.0),
    "long": _constant(1e30),
    "not a number": _constant(np.nan),
    "negative": _constant(-3.0),
    "infinite": _constant(np.inf),
}
_KINDS_OF_A_CROWD: Final = 4
"""The first of a table; of each come more than two blocks of the product hold, so that one block is full of it."""

Member = Rows
"""One record, or the records of one unit."""


class Table(NamedTuple):
    """Members of one call, and the places of those that are looked at, in their order."""

    name: str
    members: list[Member]
    places: list[int]


def guests(rows: Rows, most: int, rng: np.random.Generator) -> list[Member]:
    """Those who are looked at: two of a case, and one of each kind, of all classes; with up to `most` records each."""
    own = [rows.values[rng.choice(len(rows.units), size=1 + number % most)] for number in range(2)]
    shape = rows.values.shape[1:]
    made = [make(rng, (1 + number % most, *shape)) for number, make in enumerate(_kinds(rows).values())]
    classes = np.unique(rows.labels)
    return [
        _member(values, classes[(number + np.arange(len(values))) % len(classes)], rows)
        for number, values in enumerate([*own, *made])
    ]


def tables(rows: Rows, seated: list[Member], few: int, rng: np.random.Generator) -> Iterator[Table]:
    """Guests before, between or behind so many others who are all of one kind and one class."""
    classes = np.unique(rows.labels)
    for turn, (kind, make) in enumerate(_kinds(rows).items()):
        others = _others(make, rows, few, classes[[turn % len(classes)]], rng)
        first = few * (turn % 3) // 2
        places = list(range(first, first + len(seated)))
        yield Table(f"where others are {kind}", [*others[:first], *seated, *others[first:]], places)


def crowd(rows: Rows, seated: list[Member], many: int, rng: np.random.Generator) -> Table:
    """Guests in the middle of many, kind after kind; each sits among its own kind, if that is there."""
    kinds, classes = dict(itertools.islice(_kinds(rows).items(), _KINDS_OF_A_CROWD)), np.unique(rows.labels)
    names = ["", "", *_kinds(rows)]
    members, places = list[Member](), dict[int, int]()
    for kind, make in kinds.items():
        others = _others(make, rows, many // len(kinds), classes, rng)
        among = [number for number, name in enumerate(names) if (name if name in kinds else next(iter(kinds))) == kind]
        half = len(others) // 2
        places |= {number: len(members) + half + place for place, number in enumerate(among)}
        members += [*others[:half], *(seated[number] for number in among), *others[half:]]
    return Table("where there are many others", members, [places[number] for number in range(len(seated))])


def together(members: list[Member], units: list[int] | None = None) -> Rows:
    """Rows of all records; units are numbered by their place if nothing else is said."""
    numbers = range(len(members)) if units is None else units
    identities = np.repeat(np.asarray(numbers, dtype=np.int64), [len(member.labels) for member in members])
    return Rows(*(np.concatenate([member[part] for member in members]) for part in (0, 1)), identities)


def _kinds(rows: Rows) -> dict[str, Make]:
    return IMAGES if rows.values.dtype == np.uint8 else NUMBERS


def _others(make: Make, rows: Rows, count: int, classes: NDArray[np.int64], rng: np.random.Generator) -> list[Member]:
    values, labels = make(rng, (count, *rows.values.shape[1:])), rng.choice(classes, size=count)
    return [_member(values[[row]], labels[[row]], rows) for row in range(count)]


def _member(values: Values, labels: NDArray[np.int64], rows: Rows) -> Member:
    return Rows(values.astype(rows.values.dtype), labels, np.zeros(len(labels), dtype=np.int64))
