"""Noisy directions: the gradient of every unit is scaled to length 1 and turned by von Mises-Fisher noise of its own.

This is the release of directional privacy (Faustini, Fernandes, Tonni, McIver & Dras 2023, "Directional Privacy for
Deep Learning", Algorithm 1), in passes over a partition of the units, with an (ε, δ) charge that holds. Noise is added
to each unit, not to the sum. Claim, proof and tests: docs/mechanisms/von_mises_fisher.md.
"""

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import ClassVar, Final, Literal, final

import numpy as np
from pydantic import Field

from datalens_service.base.arrays import Floats
from datalens_service.mechanisms.base import Example, Mechanism
from datalens_service.mechanisms.confined import refused
from datalens_service.mechanisms.exact_sum import ExactSum
from datalens_service.mechanisms.gradient_sum import GradientChunk, check_chunk, unit_means
from datalens_service.privacy.accounting import SMOOTHING_VARIANCE, NeighboringRelation
from datalens_service.privacy.partitioned_passes import PartitionedPasses
from datalens_service.privacy.poisson_sampling import continuous_multiplier
from datalens_service.privacy.randomness import Booleans, Integers, NoiseSource

GRID: Final = 2**16
"""Grid steps per unit length in what is stored."""

_COORDINATES_PER_BLOCK: Final = 2**21
_ROUNDING: Final = 1e-12


@final
class VonMisesFisherSum(Mechanism[Iterable[GradientChunk], Floats]):
    """Sum of one noisy direction for each unit of a batch.

    Formal guarantee, in real arithmetic: x(u), the mean of u's gradients scaled to length 1, is released as a direction
    of density ∝ exp(kappa·x(u)ᵀy); a unit without a direction as a uniform one. For its unit a release is μ-GDP with
    μ = kappa/√(d − 3) when it is emptied and 2·kappa/√(d − 3) when it is replaced, d = `dimensions`; and 2·kappa-DP.

    The price is stated like that of Gaussian noise: `noise_stddev` is the σ whose charge Δ²/(σ² − 9), with Δ the
    integer length of a direction, covers μ². kappa follows from it.
    """

    ledger_label: ClassVar[str] = "network.noisy_directions"
    name: Literal["von_mises_fisher"] = "von_mises_fisher"
    dimensions: int = Field(ge=4, le=2**30, description="Weights of the network.")
    partition: PartitionedPasses = Field(description="Which units take part in a release, and what all of them cost.")

    @property
    def radius(self) -> int:
        """Return an integer bound of a direction's L2 norm on the grid: rounding moves it by at most √d/2."""
        return direction_radius(self.dimensions)

    @property
    def kappa(self) -> float:
        """Return the concentration of the noise, rounded down."""
        return GRID * math.sqrt((self.dimensions - 3) / (self.noise_stddev**2 - SMOOTHING_VARIANCE)) * (1 - _ROUNDING)

    def block(self) -> PartitionedPasses:
        return self.partition

    @classmethod
    def example_contributions(cls) -> Example:
        import torch

        rows = torch.tensor([[7.0, 0.0, 0.0, 0.0], [torch.nan, 0.0, 0.0, 0.0], [0.0, torch.inf, 0.0, 0.0]])
        one, none, chunk = (GradientChunk(rows[:count], torch.arange(count)) for count in (1, 0, 3))
        stddev, radius_squared = 700_000, Fraction(direction_radius(4) ** 2)
        partition = PartitionedPasses.priced(
            continuous_multiplier(radius_squared, stddev), num_units=3, batches=1, passes=2
        )
        mechanism = cls(dimensions=4, partition=partition, noise_stddev=stddev)
        return Example(mechanism, [one], [none], [chunk], Fraction(99, 100))

    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        factor = 4 if relation == NeighboringRelation.REPLACE_ONE else 1
        return Fraction(factor * self.radius**2)

    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        """A unit adds one direction, whatever it holds; but positions in batches identify single records only."""
        return records_per_unit == 1 or self.partition.batches == 1

    def exact_sum(self, contributions: Iterable[GradientChunk]) -> Integers:
        """Sum the directions without noise on the grid, int64 (dimensions,); tests compare it, and nothing releases it.

        Raises:
            ContributionFailed: Chunks have another width, or split or repeat a unit.
        """
        exact = ExactSum((self.dimensions,), self.radius)
        for block in self._directions(contributions):
            exact.add(np.rint(block * GRID))
        return exact.total

    def noisy_sum(self, contributions: Iterable[GradientChunk], batch: Booleans, noise: NoiseSource) -> Integers:
        """Sum one noisy direction for every unit of the batch on the grid, as int64 (dimensions,).

        Units of the batch that send nothing get a uniform direction, so the number of terms tells nothing.

        Raises:
            ContributionFailed: Chunks have another width, split or repeat a unit, or hold more units than the batch.
        """
        exact, missing = ExactSum((self.dimensions,), self.radius), int(np.count_nonzero(batch))
        for block in self._directions(contributions):
            exact.add(np.rint(noise.directions(block, self.kappa) * GRID))
            missing -= len(block)
        if missing < 0:
            raise refused("There are more units in the contributions than in the batch.")
        for start in range(0, missing, self._rows_per_block):
            nobody = np.zeros((min(self._rows_per_block, missing - start), self.dimensions))
            exact.add(np.rint(noise.directions(nobody, self.kappa) * GRID))
        return exact.total

    def decode(self, noisy: Integers) -> Floats:
        return np.asarray(noisy / GRID)

    @property
    def _rows_per_block(self) -> int:
        return max(1, _COORDINATES_PER_BLOCK // self.dimensions)

    def _directions(self, contributions: Iterable[GradientChunk]) -> Iterator[Floats]:
        """Yield private blocks (units, dimensions) of directions, with zeros for a unit that has none."""
        import torch

        last_unit: int | None = None
        for chunk in contributions:
            last_unit = check_chunk(chunk, self.dimensions, last_unit)
            for block in torch.split(unit_means(chunk), self._rows_per_block):
                yield unit_directions(block.to("cpu", torch.float64).numpy())


def direction_radius(dimensions: int) -> int:
    """Return an integer bound of the L2 norm of a direction of so many numbers on the grid."""
    return GRID + math.isqrt(dimensions) // 2 + 1


def unit_directions(rows: Floats) -> Floats:
    """Scale rows to length 1; those that are not finite, or too short or too long to be scaled, become 0."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    # Scaled first, so that squares neither overflow nor vanish.
    scaled = np.where(usable[:, None], rows, 0.0) / np.where(usable, largest, 1.0)[:, None]
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return np.asarray(scaled / np.where(usable, lengths, 1.0)[:, None])
