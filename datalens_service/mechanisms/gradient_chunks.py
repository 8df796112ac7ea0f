"""Gradients of records, a chunk of whole privacy units at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from datalens_service.errors import InvalidInput

if TYPE_CHECKING:
    import torch


class GradientChunk(NamedTuple):
    """Private contributions: one gradient per record, of whole privacy units."""

    gradients: torch.Tensor
    """(records, dimensions), any float dtype. A unit whose mean is not finite, or longer than 10^19, becomes 0."""
    units: torch.Tensor
    """(records,) int64 identity of each record's unit, ascending; greater than all units of the chunks before."""


def check_chunk(chunk: GradientChunk, dimensions: int, last_unit: int | None) -> int | None:
    """The last unit of a chunk; every unit is in one chunk only, all its records side by side.

    Args:
        chunk: Private.
        dimensions: Width of a gradient.
        last_unit: Of the chunk before.

    Raises:
        InvalidInput: It has another width, or splits or repeats a unit.
    """
    if chunk.gradients.shape != (len(chunk.units), dimensions):
        raise InvalidInput("A chunk of gradients has another shape than the mechanism.")
    if not len(chunk.units):
        return last_unit
    ascending = bool((chunk.units[1:] >= chunk.units[:-1]).all())
    first = int(chunk.units[0])
    if not ascending or (last_unit is not None and first <= last_unit):
        raise InvalidInput("The records of a unit must stand side by side in one chunk of gradients.")
    return int(chunk.units[-1])


def unit_means(chunk: GradientChunk) -> torch.Tensor:
    """(units, dimensions) mean over the records of each unit.

    Records are added one rank after the other, so that a mean is a function of its own unit to the last bit.
    """
    import torch

    identities, inverse, sizes = torch.unique_consecutive(chunk.units, return_inverse=True, return_counts=True)
    if len(identities) == len(chunk.units):
        return chunk.gradients
    starts = sizes.cumsum(0) - sizes
    ranks = torch.arange(len(chunk.units), device=chunk.units.device) - starts[inverse]
    # The mean of one record has the sign of its zeros, too.
    sums = chunk.gradients.new_full((len(identities), chunk.gradients.shape[1]), -0.0, dtype=torch.float64)
    for rank in range(int(sizes.max())):
        records = torch.nonzero(ranks == rank).squeeze(1)
        sums[inverse[records]] += chunk.gradients[records]
    means: torch.Tensor = sums / sizes[:, None]
    return means
