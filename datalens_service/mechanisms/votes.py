"""Votes in general: teachers' rows of integers, a guard in exact integers, and their sum.

A vote mechanism turns the gradient of one teacher for one image into a row of integers whose squared L2 norm
is at most `row_bound_squared`. Two such rows are at most twice their length apart, and less if no entry is
negative, which is the whole proof of the sensitivity (docs/mechanisms/topagg.md, klevel.md, count_sketch.md,
histogram.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Integer, Number
from datalens_service.mechanisms.base import Example, Mechanism
from datalens_service.mechanisms.confined import refused
from datalens_service.mechanisms.exact_sum import ExactSum, check_range
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch

_IN_CACHE: Final = 2**18
"""Numbers that fit into a processor's cache together."""

Threshold = Number | Literal["none"]
Directions = NDArray[np.float32]


def _unchanged(sums: Integers) -> Integers:
    return sums


class PartialGradients(NamedTuple):
    """Gradients of teachers that vote on a part of the images; on all others they vote zero.

    Attributes:
        gradients: (teachers, part of the images, dimensions).
        images: The part of the images, as a slice.
    """

    gradients: torch.Tensor
    images: slice


GradientBlocks = Iterable["torch.Tensor | PartialGradients"]


@dataclass(frozen=True)
class DistributedGradients:
    """Gradients of one rank's teachers, to be summed with those of all other ranks.

    Attributes:
        blocks: Blocks as `VoteMechanism.exact_sum` takes them.
        first_teacher: Number of the first teacher of this rank.
        all_reduce: Takes the sum of `blocks` and returns the sum over all ranks.
    """

    blocks: GradientBlocks
    first_teacher: int = 0
    all_reduce: Callable[[Integers], Integers] = _unchanged


class VoteMechanism(Mechanism["GradientBlocks | DistributedGradients", Directions]):
    """Noisy sum of one row of integers per teacher and image; an image is one query.

    Formal guarantee: a unit lives in the shard of one teacher (of one teacher per class it has records of), whose
    rows may change arbitrarily. Rows are at most √row_bound_squared long, and an image has at most one teacher of
    the unit, so the sum for one image moves by at most Δ = 2·√row_bound_squared, under zero-out and under
    replace-one. Rows v, v' without negative entries have v·v' ≥ 0, so Δ² = ‖v‖² + ‖v'‖² = 2·row_bound_squared; and
    Δ² = row_bound_squared where a row is one number.
    A release is μ-GDP with μ² = `queries_per_unit` · Δ² / (σ² − 9).
    """

    reads_scores: ClassVar[bool] = False
    """True if teachers hand over a number per image instead of a gradient."""
    example_tightness: ClassVar[Fraction] = Fraction(1)
    """Less than 1 where no gradient attains the bound."""
    example_dimensions: ClassVar[int] = 8
    num_teachers: int = Field(ge=1)
    images: int = Field(ge=1, description="Images voted on in one release.")
    dimensions: int = Field(ge=1, description="Coordinates of one gradient.")
    clip: float = Field(gt=0, description="Clipping bound of a gradient coordinate.")
    stochastic: bool = Field(description="Round by an unbiased coin instead of to the nearest value.")
    threshold: Threshold = Field(description="β: sums below β·num_teachers become 0; 'none' keeps the mean.")
    classes_voted_apart: int = Field(
        default=1, ge=1, description="Number of classes when a teacher votes on images of its own class only."
    )
    classes_per_unit: int = Field(
        default=1, ge=1, description="Largest number of classes that records of one unit belong to."
    )
    seed: int = Field(
        default=0, ge=0, description="Seed of coins, rotation and hashes; the guarantee does not rest on it."
    )

    @property
    def coordinates(self) -> int:
        """Return the number of integers per row, summed and released for one image; by default, those of a gradient."""
        return self.dimensions

    @property
    @abstractmethod
    def row_bound_squared(self) -> int:
        """Return the largest squared L2 norm of one row."""

    @abstractmethod
    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Encode gradients as rows of integers (teachers, images, coordinates), each from its own gradient alone.

        Args:
            gradients: (teachers, images, dimensions), any float dtype. A row that is not finite, or all zero,
                must vote all zeros.
        """

    @classmethod
    @abstractmethod
    def example_parameters(cls) -> VoteParameters:
        """Return parameters of a vote for which a gradient and its negative lie as far apart as any two."""

    @classmethod
    def example_contributions(cls) -> Example:
        """Return a teacher whose every vote turns round, on one image only."""
        import torch

        wave = torch.sin(torch.arange(1.0, 1.0 + cls.example_dimensions))
        gradients = torch.zeros(4, 4, len(wave))
        gradients[1, 0] = wave / wave.abs().max()
        common = {
            "num_teachers": 6, "images": 4, "dimensions": len(wave), "clip": 1.0,
            "stochastic": False, "threshold": "none", "noise_stddev": 500,
        }  # fmt: skip
        mechanism = cls.example_parameters().build(common)
        not_finite = [gradients, torch.stack([gradients[1] * torch.nan, gradients[1] + torch.inf])]
        return Example(mechanism, [gradients], [-gradients], not_finite, cls.example_tightness)

    def images_voted_on(self) -> int:
        return self.images

    @property
    def non_negative(self) -> bool:
        """Tell whether rows with a negative entry are dropped, which lowers Δ²."""
        return False

    @property
    def teachers_per_image(self) -> int:
        return max(1, self.num_teachers // self.classes_voted_apart)

    @property
    def images_per_teacher(self) -> int:
        """Return the number of images of a step that one teacher may vote on."""
        return -(-self.images // self.classes_voted_apart)

    @final
    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        """Return Δ² = 4·row_bound_squared, for every teacher that may change; attained by a row and its negative.

        It is half of that for rows without negative entries, attained by two rows that are nowhere both positive, and a
        quarter of it if rows have one entry only.
        """
        factor = 4 if not self.non_negative else 2 if self.coordinates > 1 else 1
        return Fraction(factor * self.row_bound_squared)

    @final
    def queries_per_unit(self, relation: NeighboringRelation) -> int:
        """Count the images that the teachers of one unit vote on.

        With class-pure shards a unit has a teacher in every class it has records of. A replaced unit may leave
        those and enter as many of other classes, so replace-one counts the images of both.
        """
        if self.classes_voted_apart == 1:
            return self.images
        moved = 2 if relation == NeighboringRelation.REPLACE_ONE else 1
        return min(self.images, self.images_per_teacher * self.classes_per_unit * moved)

    @final
    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        """Check the number of classes: with class-pure shards a unit has one teacher for each of its classes."""
        return self.classes_voted_apart == 1 or self.classes_per_unit == classes_per_unit

    @final
    def exact_sum(self, contributions: GradientBlocks | DistributedGradients) -> Integers:
        """Sum all teachers' rows, as int64 (images, coordinates).

        Args:
            contributions: Blocks of gradients, each (teachers, images, dimensions) or a part of the images, any
                float dtype; a teacher belongs to one block. When distributed, every rank calls this with its own.

        Raises:
            ContributionFailed: More than `num_teachers` teachers voted, or rows have another shape.
        """
        if not isinstance(contributions, DistributedGradients):
            contributions = DistributedGradients(contributions)
        # Ranks count their own teachers alone.
        check_range(self.num_teachers, self._largest_vote)
        local, voters = self._local_sum(contributions)
        # The number of voters goes along with the sums, so no rank tells the others how many it has.
        sums = contributions.all_reduce(np.append(local, voters))
        self._check_voters(int(sums[-1]))
        return sums[:-1].reshape(local.shape)

    def _local_sum(self, contributions: DistributedGradients) -> tuple[Integers, int]:
        """Return the sum over this rank's teachers, and their number."""
        import torch

        exact, voters = ExactSum((self.images, self.coordinates), self._largest_vote), 0
        for block in contributions.blocks:
            gradients, rows = block if isinstance(block, PartialGradients) else (block, slice(None))
            # By the number of the first teacher: the coins are the same for any number of ranks.
            seed = self.seed + contributions.first_teacher + voters
            coins = torch.Generator(gradients.device).manual_seed(seed % 2**63)
            voters += len(gradients)
            self._check_voters(voters)
            for part in torch.split(gradients, _teachers_at_once(gradients)):
                votes = self.zero_out_of_bound_rows(self.encode(part, coins))
                if votes.shape[1:] != exact.total[rows].shape:
                    raise refused("A vote has one row for each of its images.")
                exact.add(votes, rows)
        return exact.total, voters

    @property
    def _largest_vote(self) -> int:
        """Bound a coordinate: the guard keeps no longer row."""
        return math.isqrt(self.row_bound_squared)

    def _check_voters(self, voters: int) -> None:
        if voters > self.num_teachers:
            raise refused(f"More than {self.num_teachers} teachers voted in one release.")

    @final
    def zero_out_of_bound_rows(self, votes: torch.Tensor) -> torch.Tensor:
        """Zero every row that is too long, or negative where none may be, and teachers that vote on too many images.

        The proved bound thus holds even if `encode` were wrong.

        Args:
            votes: Integers (teachers, images, coordinates).
        """
        import torch

        if votes.is_floating_point():
            raise refused("Votes must be integers.")
        # Squares of integers add up without rounding in float64 until they are far beyond any bound.
        wide = votes.to(torch.float64)
        squared = torch.linalg.vecdot(wide, wide)
        # The price counts the images that one teacher may vote on.
        few_images = (squared > 0).sum(dim=1, keepdim=True) <= self.images_per_teacher
        inside = (squared <= self.row_bound_squared) & few_images
        if self.non_negative:
            inside &= (votes >= 0).all(dim=-1)
        guarded: torch.Tensor = votes * inside[..., None]
        return guarded

    def direction(self, sums: NDArray[np.float64] | Integers) -> Directions:
        """Threshold the sums: keep the sign where a sum reaches β·N, or the plain mean without threshold.

        Args:
            sums: (images, dimensions), where one teacher counts at most 1.
        """
        if self.threshold == "none":
            return (sums / self.num_teachers).astype(np.float32)
        bar = self.threshold * self.num_teachers
        return (sums >= bar).astype(np.float32) - (sums <= -bar).astype(np.float32)


class VoteParameters(BaseModel, ABC):
    """Parameters of one kind of vote, named like the fields of `mechanism`; a method adds those that all share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mechanism: ClassVar[type[VoteMechanism]]

    def build(self, common: dict[str, Any]) -> VoteMechanism:
        return self.mechanism.model_validate(common | self.model_dump())

    def check(self, dimensions: int) -> None:
        """Refuse a gradient that such a vote does not fit.

        Args:
            dimensions: Coordinates of the gradient.

        Raises:
            InvalidSpec: The vote does not fit.
        """


class TopKParameters(VoteParameters):
    """Parameters of votes on the largest coordinates."""

    top_k: Integer = Field(default=200, ge=1, description="k: coordinates of an image that a teacher votes on.")

    def check(self, dimensions: int) -> None:
        if self.top_k > dimensions:
            raise InvalidSpec(f"⟦method.votes.top_k⟧ must not exceed the {dimensions} coordinates of a vote.")


def _teachers_at_once(gradients: torch.Tensor) -> int:
    """Take all teachers on a graphics processor, else as many as fit into the cache with their votes."""
    if gradients.device.type != "cpu":
        return max(1, len(gradients))
    return max(1, _IN_CACHE // max(1, gradients[0].numel()))


def zero_rows_that_are_not_finite(gradients: torch.Tensor) -> torch.Tensor:
    """Replace every row that has a NaN or ±∞ by zeros, so that it votes nothing."""
    import torch

    # The sum turns NaN or ±∞ if any coordinate is, which is cheaper than looking at each twice.
    finite = torch.isfinite(gradients.sum(dim=-1, keepdim=True))
    return torch.where(finite, gradients, 0.0)
