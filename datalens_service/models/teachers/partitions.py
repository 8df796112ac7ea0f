"""Partitions of teachers, which are computed together and kept by one rank.

A partition lies within one group of teachers, and its bounds follow from public numbers alone. Blocks never cross a
partition and ranks keep whole partitions, so that every product and every draw is the same for any number of ranks.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from datalens_service.base.errors import InvalidSpec

TeacherPartition: TypeAlias = range
"""Numbers of consecutive teachers."""

PARTITIONS: Final = 16
"""Approximate number of partitions of all teachers: the largest number of ranks that find work."""

_SMALLEST: Final = 64


def partition_teachers(num_teachers: int, groups: int = 1) -> list[TeacherPartition]:
    """Partition teachers 0 to N − 1 in order.

    Args:
        num_teachers: N.
        groups: Equal groups of teachers, such as one per class.

    Raises:
        InvalidSpec: N is no multiple of `groups`.
    """
    if num_teachers % groups:
        raise InvalidSpec("⟦method.num_teachers⟧ must be a multiple of the number of groups of synthetic images.")
    size = num_teachers // groups
    count = max(1, min(-(-PARTITIONS // groups), size // _SMALLEST))
    bounds = [group * size + size * part // count for group in range(groups) for part in range(count)]
    return [range(start, stop) for start, stop in zip(bounds, [*bounds[1:], num_teachers], strict=True)]


def local_blocks(partitions: Sequence[TeacherPartition], teachers: range, size: int) -> Iterator[slice]:
    """Yield those of `teachers` that this rank keeps, at most `size` at once; bounds depend on public numbers alone.

    Args:
        partitions: Partitions of this rank, one after another.
        teachers: Requested, among all N.
        size: At least 1.

    Yields:
        Rows, counted from the first teacher of `partitions`.
    """
    origin = partitions[0].start
    for partition in partitions:
        stop = min(partition.stop, teachers.stop)
        for first in range(max(partition.start, teachers.start), stop, size):
            yield slice(first - origin, min(first + size, stop) - origin)
