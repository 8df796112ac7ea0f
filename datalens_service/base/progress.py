"""What a job does now: its row, its events and the API say it by these words."""

from collections.abc import Callable, Iterator
from enum import StrEnum

Tell = Callable[[float], None]
"""Told which share, from 0 to 1, of some longer work is done; may raise to stop it."""


class Phase(StrEnum):
    """The phases of a job in their order, and the one of an audit."""

    TRAINING = "training"
    """Releases are made, one after the other."""
    FITTING = "fitting"
    """Released sums are made into a model: samples, labels and networks are fitted to them."""
    DRAWING = "drawing"
    """Synthetic images are drawn."""
    PACKAGING = "packaging"
    """What was paid for is written to files."""
    EVALUATING = "evaluating"
    """The model is ready, and measured."""
    REPORTING = "reporting"
    """Files that state figures are written again."""
    ATTACKING = "attacking"
    """An audit trains and attacks."""


def be_silent(_share: float) -> None:
    """Tell nobody."""


def tell_part(tell: Tell, begin: float, end: float) -> Tell:
    """What tells of one part of a longer work."""
    return lambda share: tell(begin + (end - begin) * share)


def told_blocks(count: int, size: int, tell: Tell) -> Iterator[slice]:
    """Blocks of so many rows, one after the other; each is told of once it was worked off."""
    for start in range(0, count, size):
        yield slice(start, start + size)
        tell(min(1.0, (start + size) / count))
