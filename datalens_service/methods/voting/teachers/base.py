"""What a kind of teacher can be told, and what it is built from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from datalens_service.base.fields import Frozen, Integer
from datalens_service.data.dataset import Schema

if TYPE_CHECKING:
    from torch import Tensor

    from datalens_service.mechanisms.private_shards import Shards
    from datalens_service.models.teachers.base import TeacherBackend


class Setting(NamedTuple):
    """Public: what teachers are made with."""

    teacher: TeacherParameters
    num_teachers: int
    """Of all ranks."""
    schema: Schema
    seed: int
    basis: Tensor | None
    """(dimensions of an image, dimensions of a vote), or None for pixels."""


class TeacherParameters(Frozen, ABC):
    """Of one kind of teacher; how many there are, and of which records, is up to the method."""

    batch: Integer = Field(
        default=15, ge=1, le=1024, description="Records of its shard a teacher trains on, or compares with."
    )

    @abstractmethod
    def build(self, setting: Setting, shards: Shards) -> TeacherBackend:
        """The teachers of one rank.

        Args:
            shards: Private; a folder on a disk for what does not fit into memory, and a batch of each shard, for
                teachers that keep it instead of training.

        Raises:
            InvalidSpec: They do not fit on the disk.
        """

    @abstractmethod
    def count_weights(self, schema: Schema) -> int:
        """About how many weights one teacher trains; 0 for teachers that do not train."""

    def steps_before_vote(self, *, first: bool) -> int:
        """Optimiser steps of a teacher before a vote; none for teachers that do not train."""
        return 0
