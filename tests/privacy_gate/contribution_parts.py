"""Which part of a release's contributions is a given unit's, and which part is everybody else's."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from datalens_service.data import partition
from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import DistributedGradients, GradientChunk, PartialGradients
from datalens_service.methods import AnyMethod
from datalens_service.methods.voting.voting_method import VotingMethod

from .replay import ROWS


def teachers_of(method: AnyMethod, dataset: Dataset, unit: int) -> set[int]:
    """Teachers that a unit may reach: those to which it would be dealt if it were alone."""
    if not isinstance(method, VotingMethod):
        return set()
    labels = dataset.train.labels[dataset.train.unit_ids == unit]
    apart = labels if method.shards == "class_pure" else None
    units = np.full(len(labels), unit)
    shards = partition.assign_shards(
        dataset.partition_key, units, method.num_teachers, apart, dataset.schema.num_classes
    )
    return set(shards.tolist())


def split(contributions: Any, unit: int, teachers: set[int]) -> tuple[Any, Any]:
    """(of all others, of the unit): rows of records, or gradients of teachers, where all others' are 0.

    Args:
        contributions: As a recorded step has them.
        unit: Identity of the unit.
        teachers: Those of the unit.
    """
    if isinstance(contributions, ROWS):
        belongs = contributions.units == unit
        return tuple(type(contributions)(*(array[rows] for array in contributions)) for rows in (~belongs, belongs))
    if isinstance(contributions, list):
        return _chunks(contributions, unit, of_unit=False), _chunks(contributions, unit, of_unit=True)
    return _only(contributions, teachers, of_unit=False), _only(contributions, teachers, of_unit=True)


def as_bytes(contributions: Any) -> list[tuple[Any, ...]]:
    """Every bit of them, with types and shapes."""
    if isinstance(contributions, ROWS):
        return [_array_bytes(array) for array in contributions]
    if isinstance(contributions, list):
        return [_array_bytes(torch.cat(parts).numpy()) for parts in zip(*contributions, strict=True)]
    plain = [
        block if isinstance(block, PartialGradients) else PartialGradients(block, slice(None))
        for block in contributions.blocks
    ]
    return [(*_array_bytes(block.gradients.numpy()), block.images) for block in plain]


def _chunks(chunks: list[GradientChunk], unit: int, *, of_unit: bool) -> list[GradientChunk]:
    """Rows of gradients; chunks end where they did, which is nobody's contribution."""
    stay = [(chunk.units == unit) == of_unit for chunk in chunks]
    return [GradientChunk(chunk.gradients[rows], chunk.units[rows]) for chunk, rows in zip(chunks, stay, strict=True)]


def _only(votes: DistributedGradients, teachers: set[int], *, of_unit: bool) -> DistributedGradients:
    blocks, first = [], votes.first_teacher
    for block in votes.blocks:
        gradients = block.gradients if isinstance(block, PartialGradients) else block
        stay = torch.tensor([(first + row in teachers) == of_unit for row in range(len(gradients))])
        masked = torch.where(stay[:, None, None], gradients, 0.0)
        blocks.append(block._replace(gradients=masked) if isinstance(block, PartialGradients) else masked)
        first += len(gradients)
    return replace(votes, blocks=blocks)


def _array_bytes(array: NDArray[Any]) -> tuple[Any, ...]:
    return array.dtype.str, array.shape, array.tobytes()
