"""Runs of teachers: what is computed together and held by one rank.

A run lies within one group of teachers, and its bounds follow from public numbers alone. Blocks never cross a run and
ranks hold whole runs, so that every product and every draw is the same for any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from datalens_service.errors import InvalidSpec

RUNS: Final = 16
"""Of all teachers, about: the largest number of ranks that find work."""

_SMALLEST: Final = 64


def runs_of(num_teachers: int, groups: int = 1) -> list[range]:
    """Teachers 0 to N − 1 in order.

    Args:
        num_teachers: N.
        groups: Equal groups of teachers, such as one per class.

    Raises:
        InvalidSpec: N is no multiple of `groups`.
    """
    if num_teachers % groups:
        raise InvalidSpec("num_teachers must be a multiple of the number of groups of synthetic images.")
    own = num_teachers // groups
    count = max(1, min(-(-RUNS // groups), own // _SMALLEST))
    bounds = [group * own + own * part // count for group in range(groups) for part in range(count)]
    return [range(start, stop) for start, stop in zip(bounds, [*bounds[1:], num_teachers], strict=True)]


def held_by(rank: int, ranks: int, runs: Sequence[range]) -> list[range]:
    """The runs of one rank, one after another.

    Raises:
        InvalidSpec: There are more ranks than runs.
    """
    if ranks > len(runs):
        raise InvalidSpec(f"So few teachers can be shared by at most {len(runs)} ranks: start fewer.")
    return list(runs[len(runs) * rank // ranks : len(runs) * (rank + 1) // ranks])


def blocks_of(runs: Sequence[range], held: range, teachers: range, size: int) -> Iterator[slice]:
    """Those of `teachers` that are held, at most `size` at once; the bounds depend on public numbers alone.

    Args:
        runs: That are held.
        held: All teachers of `runs`.
        teachers: Wanted.
        size: At least 1.

    Yields:
        Rows, counted from the first teacher that is held.
    """
    for run in runs:
        stop = min(run.stop, teachers.stop)
        for first in range(max(run.start, teachers.start), stop, size):
            yield slice(first - held.start, min(first + size, stop) - held.start)
