"""TopAgg: teachers vote with stochastic top-k sign gradients, the votes are summed under Gaussian noise.

DataLens (CCS 2021), Algorithms 1 and 2, with noise on every coordinate and an exact accountant.
Claim, proof and tests: docs/mechanisms/topagg.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.mechanisms.base import Integers, Mechanism
from datalens_service.privacy.accounting import NeighboringRelation

if TYPE_CHECKING:
    import torch

Threshold = float | Literal["none"]


@final
class TopAgg(Mechanism["Iterable[torch.Tensor]", NDArray[np.float32]]):
    """Noisy sum of top-k sign votes, one query per image.

    Formal guarantee: one teacher's votes on one image may change arbitrarily, which moves the sum by at most
    2·√k in L2 (k entries flip their sign). A release is μ-GDP with μ² = images_per_unit · 4k / (σ² − 9)
    under zero-out. A unit lives in the shard of one teacher, so replace-one costs the same; with class-pure
    shards a relabelled unit leaves one teacher and enters another, which doubles μ².
    """

    name: Literal["topagg"] = "topagg"
    num_teachers: int = Field(ge=1)
    images: int = Field(ge=1, description="Images voted on in one release.")
    dimensions: int = Field(ge=1, description="Coordinates of one vote.")
    top_k: int = Field(ge=1, description="Non-zero coordinates of one vote.")
    clip: float = Field(gt=0, description="Clipping bound of a gradient coordinate before it is normalised.")
    stochastic: bool = Field(description="Draw the sign with probability (1 + ĝ)/2 instead of taking it.")
    threshold: Threshold = Field(description="β: votes below β·num_teachers become 0; 'none' keeps the mean.")
    classes_voted_apart: int = Field(
        default=1, ge=1, description="Number of classes when a teacher votes on images of its own class only."
    )
    seed: int = Field(default=0, ge=0, description="Of the stochastic signs; the guarantee does not rest on it.")

    def label(self) -> str:
        """Name of the release in the ledger."""
        return "votes.topagg"

    def images_voted_on(self) -> int:
        """All images of the step."""
        return self.images

    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        """Δ² = 4k per image and teacher that may change; attained by flipping every sign."""
        return Fraction(4 * self.top_k)

    def queries_per_unit(self, relation: NeighboringRelation) -> int:
        """Images that the teacher(s) of one unit vote on."""
        images = -(-self.images // self.classes_voted_apart)
        moved = 2 if relation is NeighboringRelation.REPLACE_ONE and self.classes_voted_apart > 1 else 1
        return images * moved

    def total(self, contributions: Iterable[torch.Tensor]) -> Integers:
        """Sum of all teachers' votes.

        Args:
            contributions: Blocks of gradients, each (teachers, images, dimensions), any float dtype.

        Returns:
            int64 array (images, dimensions).
        """
        import torch

        generator: torch.Generator | None = None
        total = np.zeros((self.images, self.dimensions), dtype=np.int64)
        for gradients in contributions:
            generator = generator or torch.Generator(gradients.device).manual_seed(self.seed)
            votes = _within_bound(self.encode(gradients, generator), self.top_k)
            total += votes.sum(dim=0, dtype=torch.int64).cpu().numpy()
        return total

    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """TopkStoSignGrad, one vote per teacher and image; a row depends on its own gradient alone.

        Args:
            gradients: (teachers, images, dimensions); a row that is not finite votes all zeros.
            generator: For the stochastic signs.

        Returns:
            int8 tensor of the same shape with at most `top_k` entries ±1 per row, else 0.
        """
        import torch

        # The sum turns NaN or ±∞ if any coordinate is, which is cheaper than looking at each twice.
        finite = torch.isfinite(gradients.sum(dim=-1, keepdim=True))
        clipped = torch.where(finite, gradients, 0.0).clamp(-self.clip, self.clip)
        largest = clipped.abs().amax(dim=-1, keepdim=True)
        normalised = clipped / largest.clamp_min(torch.finfo(clipped.dtype).tiny)
        _, index = normalised.abs().topk(min(self.top_k, self.dimensions), dim=-1, sorted=False)
        chosen = normalised.gather(-1, index)
        if self.stochastic:
            coin = torch.rand(chosen.shape, generator=generator, device=chosen.device, dtype=chosen.dtype)
            signs = torch.where(coin < (1 + chosen) / 2, 1, -1)
        else:
            signs = chosen.sign()
        signs = torch.where(largest > 0, signs, 0).to(torch.int8)
        return torch.zeros(gradients.shape, dtype=torch.int8, device=gradients.device).scatter_(-1, index, signs)

    def decode(self, noisy: Integers) -> NDArray[np.float32]:
        """Direction per image: the sign where the sum reaches β·N, or the plain mean without threshold.

        Returns:
            float32 array (images, dimensions).
        """
        if self.threshold == "none":
            return (noisy / self.num_teachers).astype(np.float32)
        bar = self.threshold * self.num_teachers
        return (noisy >= bar).astype(np.float32) - (noisy <= -bar).astype(np.float32)


def _within_bound(votes: torch.Tensor, top_k: int) -> torch.Tensor:
    """Zero every vote that breaks the proved bound, so that the sum holds even if `encode` were wrong."""
    inside = ((votes != 0).sum(dim=-1, keepdim=True) <= top_k) & (votes.abs().amax(dim=-1, keepdim=True) <= 1)
    return votes * inside
