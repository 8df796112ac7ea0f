"""What a kind of teacher can be told, and what it is built from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from datalens_service.data.dataset import Schema
from datalens_service.strict import Frozen, Integer

if TYPE_CHECKING:
    import torch

    from datalens_service.data.shard_batches import ShardBatch
    from datalens_service.models.teachers.base import TeacherBackend
    from datalens_service.models.teachers.partitions import TeacherPartition


@dataclass(frozen=True)
class TeacherRequest:
    """The teachers of one rank that are to be made; all but the records is public.

    Attributes:
        num_teachers: Of all ranks.
        active: (local,) False for a teacher whose shard is empty.
        partitions: Of this rank's teachers.
        folder: Private, on a disk, for what does not fit into memory.
        basis: (dimensions of an image, dimensions of a vote), or None for pixels.
        records: A batch of each shard, for teachers that keep it instead of training.
    """

    num_teachers: int
    schema: Schema
    device: str
    seed: int
    active: torch.Tensor
    partitions: list[TeacherPartition]
    folder: Path | None
    basis: torch.Tensor | None
    records: ShardBatch


class TeacherParameters(Frozen, ABC):
    """Of one kind of teacher; how many there are, and of which records, is up to the method."""

    batch: Integer = Field(
        default=15, ge=1, le=1024, description="Records of its shard a teacher trains on, or compares with."
    )

    @abstractmethod
    def build(self, request: TeacherRequest) -> TeacherBackend:
        """The teachers of one rank.

        Raises:
            InvalidSpec: They do not fit on the disk.
        """

    def steps_before_vote(self, *, first: bool) -> int:
        """Optimiser steps of a teacher before a vote; none for teachers that do not train."""
        return 0
