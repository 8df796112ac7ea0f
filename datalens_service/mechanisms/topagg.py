"""TopAgg: teachers vote with stochastic top-k sign gradients, the votes are summed under Gaussian noise.

DataLens (CCS 2021), Algorithms 1 and 2, with noise on every coordinate and an exact accountant.
Claim, proof and tests: docs/mechanisms/topagg.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np
from pydantic import Field

from datalens_service.mechanisms.votes import (
    Directions,
    TopKParameters,
    VoteMechanism,
    VoteParameters,
    zero_rows_that_are_not_finite,
)
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch


@final
class TopAgg(VoteMechanism):
    """Noisy sum of top-k sign votes.

    Formal guarantee: a row has at most k entries ±1, so Δ² = 4k, attained when all k flip their sign. A release
    is μ-GDP with μ² = `queries_per_unit` · 4k / (σ² − 9) under zero-out (see `VoteMechanism`).
    """

    ledger_label: ClassVar[str] = "votes.topagg"
    name: Literal["topagg"] = "topagg"
    top_k: int = Field(ge=1, description="Non-zero coordinates of one vote.")

    @classmethod
    def example_parameters(cls) -> VoteParameters:
        return TopAggParameters(top_k=4)

    @property
    def row_bound_squared(self) -> int:
        """Return k: entries are −1, 0 or +1, and at most k of them are not zero."""
        return self.top_k

    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Vote by TopkStoSignGrad: int8 rows per teacher and image, with at most `top_k` entries ±1, else 0."""
        return sign_votes(gradients, self.top_k, self.clip, generator if self.stochastic else None)

    def decode(self, noisy: Integers) -> Directions:
        return self.direction(noisy)


class TopAggParameters(TopKParameters):
    """Parameters of DataLens' own votes."""

    mechanism: ClassVar[type[VoteMechanism]] = TopAgg

    name: Literal["topagg"] = "topagg"


def sign_votes(gradients: torch.Tensor, top_k: int, clip: float, coins: torch.Generator | None) -> torch.Tensor:
    """Vote by TopkStoSignGrad (DataLens, Algorithm 2): int8 of the same shape, entries in {−1, 0, +1}.

    The coordinates are chosen before clipping. Behind a small `clip` nearly all of them are equal, and the choice would
    say nothing of the gradient.

    Args:
        gradients: (teachers, images, dimensions); a row that is not finite, or all zero, votes all zeros.
        top_k: Coordinates kept, those of largest magnitude; among equals the first.
        clip: Bound of a coordinate before the row is divided by its largest magnitude; it matters to the coin alone.
        coins: Draws +1 with probability (1 + ĝ)/2, where ĝ is the divided row; None takes the sign.
    """
    import torch

    finite = zero_rows_that_are_not_finite(gradients)
    magnitudes = finite.abs()
    largest = magnitudes.amax(dim=-1, keepdim=True)
    if coins is None:
        signs = finite.sign().to(torch.int8)
    else:
        coin = torch.rand(finite.shape, generator=coins, device=finite.device, dtype=finite.dtype)
        # +1 where coin < (1 + ĝ)/2, else −1; both sides are multiplied by 2 · the largest clipped magnitude.
        bar = coin.mul_(2).sub_(1).mul_(largest.clamp(max=clip))
        signs = (bar < finite.clamp(-clip, clip)).view(torch.int8).mul_(2).sub_(1)
    return signs * (_largest(magnitudes, top_k) & (largest > 0))


def _largest(magnitudes: torch.Tensor, count: int) -> torch.Tensor:
    """Mark exactly the `count` largest entries per row, the first among equals; all if there are no more."""
    import torch

    if count >= magnitudes.shape[-1]:
        return torch.ones_like(magnitudes, dtype=torch.bool)
    bar = _order_statistic(magnitudes, count)
    selected = magnitudes >= bar
    surplus = selected.view(torch.uint8).sum(dim=-1, keepdim=True, dtype=torch.int32) - count
    if not surplus.any():
        return selected
    equal = magnitudes == bar
    rank = equal.cumsum(dim=-1, dtype=torch.int32)
    return selected & ~(equal & (rank > rank[..., -1:] - surplus))


def _order_statistic(magnitudes: torch.Tensor, count: int) -> torch.Tensor:
    """Return the `count`-th largest entry of every row (…, 1), for entries of at least 0."""
    import torch

    index = magnitudes.shape[-1] - count
    if magnitudes.device.type != "cpu":
        return magnitudes.kthvalue(index + 1, dim=-1, keepdim=True).values
    # Floats of at least 0 are ordered as their bits are; NumPy selects integers fastest.
    array = magnitudes.numpy()
    bits = np.partition(array.view(f"i{array.itemsize}"), index, axis=-1)[..., index : index + 1]
    return torch.from_numpy(np.ascontiguousarray(bits).view(array.dtype))
