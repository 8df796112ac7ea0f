"""Scores: every teacher scores how real each image looks, and the scores are summed under noise.

PATE-GAN (Jordon, Yoon and van der Schaar 2019, "PATE-GAN: Generating Synthetic Data with Differential Privacy
Guarantees"), with the noisy sum released instead of a label. Claim, proof and tests: docs/mechanisms/label_scores.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np
from pydantic import Field

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Integer
from datalens_service.mechanisms.votes import Directions, VoteMechanism, VoteParameters
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch


@final
class LabelScores(VoteMechanism):
    """Noisy sum of one number per teacher and image.

    Formal guarantee: scores `bit` and `share` lie in {0, …, w}, w = `weight`: a teacher moves the sum of an image by at
    most w, Δ² = w². Scores `relative` lie in {−w, …, w}: Δ² = 4·w². A release is μ-GDP with
    μ² = `queries_per_unit` · Δ² / (σ² − 9).
    """

    reads_scores: ClassVar[bool] = True
    example_dimensions: ClassVar[int] = 1

    ledger_label: ClassVar[str] = "votes.label_scores"
    name: Literal["label_scores"] = "label_scores"
    dimensions: int = Field(default=1, ge=1, le=1, description="One score per image.")
    scores: Literal["bit", "share", "relative"]
    weight: int = Field(default=64, ge=1, le=2**12, description="Grid steps of the largest score.")

    @classmethod
    def example_parameters(cls) -> VoteParameters:
        """Return scores that turn round when their logits do."""
        return LabelScoresParameters(scores="bit")

    @property
    def non_negative(self) -> bool:
        """Return True but for relative scores."""
        return self.scores != "relative"

    @property
    def coordinates(self) -> int:
        return 1

    @property
    def row_bound_squared(self) -> int:
        return self.weight**2

    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return the scores, int32 of the same shape; a teacher's scores depend on its own logits alone.

        Args:
            gradients: (teachers, images, 1) logits of "this image is real"; a teacher abstains by one that is 0 or not
                finite.
        """
        import torch

        says = torch.isfinite(gradients) & (gradients != 0)
        logits = torch.where(says, gradients, 0.0).to(torch.float64)
        if self.scores == "bit":
            shares = (logits > 0).to(torch.float64)
        elif self.scores == "share":
            shares = logits.sigmoid()
        else:
            shares = _standardised(logits, says)
        return (shares * self.weight).round_().to(torch.int32) * says

    def decode(self, noisy: Integers) -> Directions:
        """Return the noisy mean score of the teachers that answer for an image, float32 (images, 1)."""
        return (noisy / (self.weight * self.teachers_per_image)).astype(np.float32)


class LabelScoresParameters(VoteParameters):
    """Parameters of the scores of PATE-GAN."""

    mechanism: ClassVar[type[VoteMechanism]] = LabelScores

    name: Literal["label_scores"] = "label_scores"
    scores: Literal["bit", "share", "relative"] = Field(
        default="share",
        description="- `bit`: real or not, as the authors do\n- `share`: how sure the teacher is\n"
        "- `relative`: which of its images a teacher finds more real, at four times the μ²",
    )
    weight: Integer = Field(default=64, ge=1, le=2**12, description="Grid steps of the largest score.")

    def check(self, dimensions: int) -> None:
        """Refuse gradients, since scores say nothing about coordinates."""
        if dimensions != 1:
            raise InvalidSpec(
                "Votes of the kind label_scores say nothing about coordinates: choose the method pate_gan."
            )


def _standardised(logits: torch.Tensor, says: torch.Tensor) -> torch.Tensor:
    """Subtract the mean over a teacher's images from its logits, divide by their deviation, and cut to [−1, 1]."""
    import torch

    count = says.sum(dim=1, keepdim=True).clamp(min=1)
    centred = torch.where(says, logits - logits.sum(dim=1, keepdim=True) / count, 0.0)
    deviation = (centred.square().sum(dim=1, keepdim=True) / count).sqrt()
    return (centred / deviation.clamp(min=torch.finfo(torch.float64).tiny)).clamp(-1, 1)
