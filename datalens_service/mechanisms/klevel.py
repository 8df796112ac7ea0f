"""k-level votes: rotated gradients rounded without bias to a few levels (D2P-Fed in DataLens).

DataLens (CCS 2021), appendix C.2, Algorithms 5 and 6. The levels are integers, the noise is on every rotated
coordinate. Claim, proof and tests: docs/mechanisms/klevel.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from datalens_service.base.fields import Integer
from datalens_service.mechanisms.votes import Directions, VoteMechanism, VoteParameters, zero_rows_that_are_not_finite
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch


@final
class KLevel(VoteMechanism):
    """Noisy sum of rotated gradients on K integer levels −(K−1), −(K−3), …, K−1.

    Formal guarantee: a row has squared length at most B = min(row_norm_squared, d·(K−1)²), so Δ² = 4·B,
    attained when all d levels change their sign. A release is μ-GDP with μ² = `queries_per_unit` · 4B / (σ² − 9).

    The rotation (random signs, then an orthonormal cosine transform) is the same for all teachers and made
    from `seed`, never from data.
    """

    ledger_label: ClassVar[str] = "votes.klevel"
    name: Literal["klevel"] = "klevel"
    levels: int = Field(ge=2, le=4096, description="K: values a rotated coordinate is rounded to.")
    row_norm_squared: int | None = Field(
        default=None, ge=1, description="Largest squared L2 norm of a row, in steps of half a level; none: d·(K−1)²."
    )

    @model_validator(mode="after")
    def _rounding_fits_the_bound(self) -> KLevel:
        if self._longest_unrounded() <= 0:
            raise ValueError(f"The largest squared norm r of a row must exceed {self.dimensions} + 8·√r.")
        return self

    @classmethod
    def example_parameters(cls) -> VoteParameters:
        return KLevelParameters(levels=2)

    @property
    def row_bound_squared(self) -> int:
        """Return B: all coordinates at the outermost level, or `row_norm_squared` if that is less."""
        largest = self.dimensions * (self.levels - 1) ** 2
        return largest if self.row_norm_squared is None else min(largest, self.row_norm_squared)

    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Vote by StoKlevelGrad: clip, rotate, divide by the bound, round to a level 2r − (K−1), r = 0 … K−1; int16."""
        import torch

        clipped = zero_rows_that_are_not_finite(gradients).clamp(-self.clip, self.clip)
        signs = torch.from_numpy(self._signs()).to(clipped)
        rotated = _cosine_transform(clipped * signs).div_(self.clip).clamp_(-1, 1)
        # A level's index r is a number from 0 to K−1; a coordinate x in [−1, 1] lies at (x + 1)·(K−1)/2.
        position = (self._shorten(rotated) + 1) * ((self.levels - 1) / 2)
        if self.stochastic:
            coins = torch.rand(position.shape, generator=generator, device=position.device, dtype=position.dtype)
            index = (position + coins).floor_().clamp_(0, self.levels - 1)
        else:
            index = position.round_()
        votes = (2 * index - (self.levels - 1)).to(torch.int16)
        return votes * (clipped != 0).any(dim=-1, keepdim=True)

    def decode(self, noisy: Integers) -> Directions:
        """Return a direction per image, rotated back: float32 (images, dimensions)."""
        import scipy.fft

        turned_back = scipy.fft.idct(noisy.astype(np.float64), norm="ortho", axis=-1) * self._signs()
        return self.direction(turned_back / (self.levels - 1))

    def _signs(self) -> NDArray[np.float64]:
        return np.random.default_rng(self.seed).choice([-1.0, 1.0], size=self.dimensions)

    def _longest_unrounded(self) -> float:
        """Return the squared length, before rounding, at which nearly every rounded row stays within the bound.

        A rounded coordinate has variance at most 1, and the square of the rounded row a standard deviation of
        about twice its length. Rows beyond the bound vanish in the guard.
        """
        bound = self.row_bound_squared
        if bound == self.dimensions * (self.levels - 1) ** 2:
            return float(bound)
        return bound - self.dimensions - 8 * math.sqrt(bound)

    def _shorten(self, rows: torch.Tensor) -> torch.Tensor:
        """Scale back rows that are too long, and divide them so that entries lie in [−1, 1]."""
        import torch

        longest = math.sqrt(self._longest_unrounded()) / (self.levels - 1)
        lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        return rows.mul_(longest / lengths.clamp_min(longest))


class KLevelParameters(VoteParameters):
    """Parameters of the votes of D2P-Fed."""

    mechanism: ClassVar[type[VoteMechanism]] = KLevel

    name: Literal["klevel"] = "klevel"
    levels: Integer = Field(default=16, ge=2, le=4096, description="K: values a rotated coordinate is rounded to.")


def _cosine_transform(rows: torch.Tensor) -> torch.Tensor:
    """Compute the orthonormal DCT-II of the last axis by one Fourier transform (Makhoul 1980)."""
    import torch

    size = rows.shape[-1]
    spectrum = torch.fft.fft(torch.cat([rows[..., ::2], rows[..., 1::2].flip(-1)], dim=-1))
    angle = torch.arange(size, device=rows.device, dtype=rows.dtype) * (math.pi / (2 * size))
    scale = torch.full_like(angle, math.sqrt(2 / size))
    scale[0] = math.sqrt(1 / size)
    transformed: torch.Tensor = (spectrum.real * angle.cos() + spectrum.imag * angle.sin()) * scale
    return transformed
