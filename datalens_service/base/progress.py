"""The phases of a job, by the words that its row, its events and the API use."""

from collections.abc import Callable, Iterator
from enum import StrEnum

Tell = Callable[[float], None]
"""Called with the share, from 0 to 1, of some longer work that is done; may raise to stop it."""


class Phase(StrEnum):
    """The phases of a job in their order, and the one of an audit."""

    TRAINING = "training"
    """Releases are made, one after the other."""
    FITTING = "fitting"
    """Released sums are turned into a model: samples, labels and networks are fitted to them."""
    DRAWING = "drawing"
    """Synthetic images are drawn."""
    PACKAGING = "packaging"
    """The results that were paid for are written to files."""
    EVALUATING = "evaluating"
    """The model is ready, and measured."""
    REPORTING = "reporting"
    """Files that state figures are written again."""
    ATTACKING = "attacking"
    """An audit trains and attacks."""


def be_silent(_share: float) -> None: ...


def tell_part(tell: Tell, begin: float, end: float) -> Tell:
    """Return a function that reports the share of one part as a share of the whole work."""
    return lambda share: tell(begin + (end - begin) * share)


def told_blocks(count: int, size: int, tell: Tell) -> Iterator[slice]:
    """Yield blocks of so many rows, one after the other, and report each once it is done."""
    for start in range(0, count, size):
        yield slice(start, start + size)
        tell(min(1.0, (start + size) / count))
