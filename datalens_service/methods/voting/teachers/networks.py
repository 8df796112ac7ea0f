"""Teachers that are networks, trained anew before every vote."""

from __future__ import annotations

import math
from abc import ABC
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from datalens_service.base.fields import Integer, Number
from datalens_service.data.dataset import Schema
from datalens_service.methods.voting.teachers.base import Setting, TeacherParameters

if TYPE_CHECKING:
    from datalens_service.mechanisms.private_shards import Shards
    from datalens_service.models.teachers.base import TeacherBackend

_HIDDEN_OF_DENSE: Final = 16
_HIDDEN_OF_CONV: Final = 256
_MAPS_OF_CONV: Final = 32
_TAPS: Final = 25
"""Weights per pair of maps in a convolution of 5×5."""


class NetworkTeacher(TeacherParameters, ABC):
    """Trains with Adam on its shard and on synthetic images (DataLens, Algorithm 1)."""

    name: str
    steps: Integer = Field(default=2, ge=1, le=100, description="Optimiser steps of a teacher per vote.")
    warmup_steps: Integer = Field(default=10, ge=1, le=1000, description="The same before the first vote.")
    learning_rate: Number = Field(default=1e-3, gt=0, le=1)

    def build(self, setting: Setting, shards: Shards) -> TeacherBackend:
        from datalens_service.models.teachers.ensemble import TeacherEnsemble

        return TeacherEnsemble(
            self.name,
            setting.num_teachers,
            setting.schema,
            shards.device,
            setting.seed,
            learning_rate=self.learning_rate,
            active=shards.active,
            partitions=shards.parts,
            folder=shards.folder,
        )

    def steps_before_vote(self, *, first: bool) -> int:
        return self.warmup_steps if first else self.steps


class DenseTeacher(NetworkTeacher):
    """A small fast network."""

    name: Literal["dense"] = "dense"

    def count_weights(self, schema: Schema) -> int:
        return _HIDDEN_OF_DENSE * (schema.dimensions + schema.num_classes)


class ConvTeacher(NetworkTeacher):
    """The network of DataLens' authors."""

    name: Literal["conv"] = "conv"

    def count_weights(self, schema: Schema) -> int:
        """Count two convolutions, beside which labels lie as planes, and a hidden layer on quarters of the sides."""
        maps = _MAPS_OF_CONV + schema.num_classes
        quarters = math.ceil(schema.height / 4) * math.ceil(schema.width / 4)
        return maps * (_HIDDEN_OF_CONV * quarters + _TAPS * (schema.channels + 2 * schema.num_classes))
