"""Histograms of projected gradients: every teacher votes for one bin per random direction.

G-PATE (Long et al. 2021, "G-PATE: Scalable Differentially Private Data Generator via Private Aggregation of Teacher
Discriminators"), with the whole noisy histogram released, so that its maximum, threshold and mean cost nothing more.
Claim, proof and tests: docs/mechanisms/histogram.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtri

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Integer
from datalens_service.mechanisms.votes import Directions, VoteMechanism, VoteParameters
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch


@final
class Histogram(VoteMechanism):
    """Noisy histograms of gradients projected onto `projections` random directions.

    Formal guarantee: a row has `projections` = p entries equal to `weight` = w, the rest 0, so its squared length is
    at most p·w². No entry is negative, so Δ² = 2·p·w², attained when all p bins change. A release is μ-GDP with
    μ² = `queries_per_unit` · 2·p·w² / (σ² − 9).

    The directions are orthonormal and made from `seed`, never from data.
    """

    ledger_label: ClassVar[str] = "votes.histogram"
    name: Literal["histogram"] = "histogram"
    projections: int = Field(ge=1, description="Random directions that a gradient is projected onto.")
    bins: int = Field(ge=2, le=1024, description="Equal parts of [−clip, clip]; what lies outside is in the outer two.")
    weight: int = Field(default=64, ge=1, le=2**12, description="Grid steps of one vote.")
    reading: Literal["mean", "argmax"] = Field(
        default="mean", description="Statistic that is read from a noisy histogram."
    )

    @classmethod
    def example_parameters(cls) -> VoteParameters:
        """Return an even number of bins, so that a gradient and its negative never share one."""
        return HistogramParameters(projections=4, bins=4)

    @property
    def non_negative(self) -> bool:
        return True

    @property
    def coordinates(self) -> int:
        return self.projections * self.bins

    @property
    def row_bound_squared(self) -> int:
        return self.projections * self.weight**2

    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Cast one vote per direction: in the bin of the projection, or with `stochastic` in one of the two nearest.

        Returns:
            int32 tensor (teachers, images, projections · bins) of entries 0 and `weight`.
        """
        import torch

        sound = torch.isfinite(gradients).all(dim=-1, keepdim=True) & (gradients != 0).any(dim=-1, keepdim=True)
        wide = torch.where(sound, gradients, 0.0).to(torch.float64)
        directions = torch.from_numpy(self._directions()).to(wide.device)
        position = ((wide @ directions) / self.clip).clamp_(-1, 1).add_(1).mul_(self.bins / 2)
        if self.stochastic:
            position += torch.rand(position.shape, generator=generator, device=position.device) - 0.5
        index = position.floor_().clamp_(0, self.bins - 1).to(torch.int64)
        rows = torch.zeros((*index.shape, self.bins), dtype=torch.int32, device=index.device)
        rows.scatter_(-1, index[..., None], self.weight)
        return rows.flatten(-2) * sound

    def decode(self, noisy: Integers) -> Directions:
        """Return a direction per image in the scale of a gradient, float32 (images, dimensions)."""
        counts = noisy.reshape(len(noisy), self.projections, self.bins) / (self.weight * self.teachers_per_image)
        middles = self.clip * ((2 * np.arange(self.bins) + 1) / self.bins - 1)
        projected = counts @ middles if self.reading == "mean" else middles[counts.argmax(axis=-1)]
        if self.threshold != "none":
            projected = np.where(counts.max(axis=-1) >= self.threshold, projected, 0.0)
        return (projected @ self._directions().T).astype(np.float32)

    def _directions(self) -> NDArray[np.float64]:
        """Return orthonormal columns (dimensions, projections)."""
        # Public directions, no noise: the same for all, from a seed in the plan.
        gaussian = ndtri(np.random.default_rng(self.seed).random((self.dimensions, self.projections)))
        return np.linalg.qr(gaussian)[0]


class HistogramParameters(VoteParameters):
    """Parameters of the votes of G-PATE."""

    mechanism: ClassVar[type[VoteMechanism]] = Histogram

    name: Literal["histogram"] = "histogram"
    projections: Integer = Field(default=10, ge=1, description="Random directions that a gradient is projected onto.")
    bins: Integer = Field(default=10, ge=2, le=1024, description="Equal parts of [−clip, clip].")
    weight: Integer = Field(default=64, ge=1, le=2**12, description="Grid steps of one vote.")
    reading: Literal["mean", "argmax"] = Field(
        default="mean", description="- `mean`: of a noisy histogram\n- `argmax`: its fullest bin, as the authors do"
    )

    def check(self, dimensions: int) -> None:
        if self.projections > dimensions:
            raise InvalidSpec(f"⟦method.projections⟧ must not exceed the {dimensions} coordinates of a gradient.")
