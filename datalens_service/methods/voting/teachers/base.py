"""The parameters of a kind of teacher, and the setting that it is built from."""

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
    """Public: the setting of teachers."""

    teacher: TeacherParameters
    num_teachers: int
    """Number of teachers of all ranks."""
    schema: Schema
    seed: int
    basis: Tensor | None
    """(dimensions of an image, dimensions of a vote), or None for pixels."""


class TeacherParameters(Frozen, ABC):
    """Parameters of one kind of teacher; the method decides on their number and their records."""

    batch: Integer = Field(
        default=15, ge=1, le=1024, description="Records of its shard a teacher trains on, or compares with."
    )

    @abstractmethod
    def build(self, setting: Setting, shards: Shards) -> TeacherBackend:
        """Build the teachers of one rank.

        Args:
            setting: Public.
            shards: Private; a folder on a disk for what does not fit into memory, and a batch of each shard, for
                teachers that keep it instead of training.

        Raises:
            InvalidSpec: They do not fit on the disk.
        """

    @abstractmethod
    def count_weights(self, schema: Schema) -> int:
        """Estimate how many weights one teacher trains; 0 for teachers that do not train."""

    def steps_before_vote(self, *, first: bool) -> int:
        """Return the optimiser steps of a teacher before a vote; 0 for teachers that do not train."""
        return 0
