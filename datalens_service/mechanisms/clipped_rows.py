"""Clipped gradients of all critics: every critic adds its whole gradient, cut to one length.

GS-WGAN (Chen, Orekondy and Fritz 2020, "GS-WGAN: A Gradient-Sanitized Approach for Learning Differentially Private
Generators"), with every critic answering for every image instead of one drawn by lot. Claim, proof and tests:
docs/mechanisms/clipped_rows.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np
from pydantic import Field

from datalens_service.base.fields import Integer
from datalens_service.mechanisms.votes import Directions, VoteMechanism, VoteParameters
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch


@final
class ClippedRows(VoteMechanism):
    """Noisy sum of gradients that are cut to length `clip`.

    Formal guarantee: a row is a gradient of length at most `clip` on a grid of `grid` steps per `clip`, rounded towards
    zero, so its squared length is at most grid², and Δ² = 4·grid². A release is μ-GDP with
    μ² = `queries_per_unit` · 4·grid² / (σ² − 9).
    """

    # Rounding towards zero shortens the rows of an example by up to √dimensions steps.
    example_tightness: ClassVar[Fraction] = Fraction(9, 10)

    ledger_label: ClassVar[str] = "votes.clipped_rows"
    name: Literal["clipped_rows"] = "clipped_rows"
    grid: int = Field(default=2**12, ge=1, le=2**16, description="Grid steps per `clip`, the largest length of a row.")

    @classmethod
    def example_parameters(cls) -> VoteParameters:
        return ClippedRowsParameters(grid=64)

    @property
    def row_bound_squared(self) -> int:
        return self.grid**2

    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Cut gradients to length `clip` and round them to the grid: int32 of their shape.

        With `stochastic` a coordinate is rounded up or down by an unbiased coin, and the guard drops rows that became
        too long; else towards zero, which leads no row out of the bound.
        """
        import torch

        sound = torch.isfinite(gradients).all(dim=-1, keepdim=True)
        wide = torch.where(sound, gradients, 0.0).to(torch.float64)
        lengths = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        wide *= self.grid / lengths.clamp(min=self.clip)
        if self.stochastic:
            wide = (wide + torch.rand(wide.shape, generator=generator, device=wide.device)).floor_()
            return wide.to(torch.int32) * sound
        return wide.trunc_().to(torch.int32)

    def decode(self, noisy: Integers) -> Directions:
        """Return a direction per image in lengths of `clip`, float32 (images, dimensions): 1 if all critics agree."""
        scale = self.num_teachers / (self.teachers_per_image * self.grid)
        sums = np.asarray(noisy, dtype=np.float64) * scale
        return self.direction(sums)


class ClippedRowsParameters(VoteParameters):
    """Parameters of the votes of GS-WGAN."""

    mechanism: ClassVar[type[VoteMechanism]] = ClippedRows

    name: Literal["clipped_rows"] = "clipped_rows"
    grid: Integer = Field(default=2**12, ge=1, le=2**16, description="Grid steps per `clip`, a row's largest length.")
