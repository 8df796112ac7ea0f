"""Sizes, times and names as people read them."""

import re
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from datalens_service.base.clock import duration, remaining
from datalens_service.data.dataset import Schema
from datalens_service.privacy.guarantee import PrivacyUnit

_CAPITAL: Final = re.compile("[A-Z]")
_UNITS_OF_SIZE: Final = ("bytes", "kB", "MB", "GB", "TB")


def size(number: int) -> str:
    """Bytes with a unit, three digits."""
    value, power = float(number), 0
    while float(f"{value:.3g}") >= 1000 and power < len(_UNITS_OF_SIZE) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {_UNITS_OF_SIZE[power]}"


def between(start: datetime, end: datetime) -> str:
    """Write how long something took, no finer than a second, as everywhere on the pages of jobs."""
    return duration((end - start).total_seconds())


def instant(at: datetime) -> Markup:
    """An element <time> in UTC; a script of the page turns it into local time."""
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(), f"{utc:%Y-%m-%d %H:%M} UTC")


def entry_instant(at: datetime) -> Markup:
    """The same to the second; it stays in UTC, as entries of a journal are compared with other records."""
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}" data-utc>{}</time>').format(utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC")


def short(identifier: str) -> Markup:
    """An id by its first characters, the whole of it as the title."""
    return Markup('<code title="{}">{}</code>').format(identifier, escape(identifier[:12] + "…"))


def pixels(schema: Schema) -> str:
    """Size and colours of the images of a data set."""
    colours = {1: "grey", 3: "colour"}.get(schema.channels, f"{schema.channels} channels")
    return f"{schema.width} × {schema.height} pixels, {colours}"


def units(schema: Schema) -> str:
    """Write how many privacy units a data set has, in its owner's word."""
    return PrivacyUnit(schema.unit, schema.records_per_unit).write_count(schema.num_units)


def classes(number: int) -> str:
    """Write a number of classes."""
    return f"{number:,} class{'' if number == 1 else 'es'}"


def action(operation: str) -> str:
    """Write the id of an operation as words: `getJobReport` is "Get job report"."""
    return _CAPITAL.sub(lambda found: f" {found[0].lower()}", operation).capitalize()


FILTERS: Final = {
    "action": action,
    "classes": classes,
    "size": size,
    "duration": duration,
    "remaining": remaining,
    "instant": instant,
    "entry_instant": entry_instant,
    "short": short,
    "pixels": pixels,
    "units": units,
}
"""By the names that templates use."""


def marked(text: str) -> Markup:
    """Text as HTML; whatever else stands in it stays text."""
    return Markup("").join(_block(block) for block in text.split("\n\n") if block)


def _block(text: str) -> Markup:
    lines = text.split("\n")
    if all(line.startswith("- ") for line in lines):
        items = Markup("").join(Markup("<li>{}</li>").format(_inline(line[2:])) for line in lines)
        return Markup("<ul>{}</ul>").format(items)
    return Markup("<p>{}</p>").format(_inline(text))


def _inline(text: str) -> Markup:
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )
