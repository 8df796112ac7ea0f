"""Moments: one noisy subspace, then a noisy mean and covariance per class (algorithms.md, section 4).

Three releases: Σ x·xᵀ pooled → subspace; counts and Σ Vᵀx per class → means; Σ r·rᵀ per class → covariances.
Whatever follows a release is post-processing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.data.dataset import Dataset, Schema
from datalens_service.errors import InfeasiblePlan, InvalidSpec
from datalens_service.mechanisms import Account, OuterProductSum, VectorSum
from datalens_service.mechanisms.moments import Vectors
from datalens_service.methods.base import Method, Plan, PlannedRelease
from datalens_service.models.gaussian import GaussianFit
from datalens_service.privacy.accounting import NeighboringRelation, smallest_noise_stddev
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness

if TYPE_CHECKING:
    from datalens_service.models.generator import Generator

Floats = NDArray[np.float64]
Moment = OuterProductSum | VectorSum

# Grid steps of one record's count: a tenth of the means' μ², as (683/2063)² ≈ 1/9 of the vectors' share.
COUNT_WEIGHT = 683

# Rounding to the grid moves a vector by √d/2 steps, which the radius pays for: a quarter of it at d = 1000.
_COARSEST_GRID = 64

# The upper triangle of a d×d matrix is released; beyond this it would not fit into memory.
MAXIMUM_DIMENSIONS = 4096


class Moments(Method):
    """Parameters of the moments method.

    The lengths are public constants, chosen on MNIST (docs/methods.md), never from the data at hand.
    """

    name: Literal["moments"] = "moments"
    subspace_dimensions: int = Field(default=60, ge=1, le=512)
    clip_norm: float = Field(
        default=0.35, gt=0, le=1, description="Largest length of an image, as a fraction of an all-white one."
    )
    residual_norm: float = Field(
        default=0.65, gt=0, le=1, description="Largest distance from the class mean, as a fraction of clip_norm."
    )
    subspace_share: float = Field(default=0.30, gt=0, lt=1, description="Share of μ² for the subspace.")
    means_share: float = Field(default=0.20, gt=0, lt=1, description="Share of μ² for class counts and means.")

    def plan(self, schema: Schema, units: int) -> Plan:
        """The three releases, calibrated so that together they cost at most `units`.

        Raises:
            InfeasiblePlan: The noise would have to be larger than the sampler can draw.
            InvalidSpec: The images are too large, or the shares leave nothing for the covariances.
        """
        if schema.dimensions > MAXIMUM_DIMENSIONS:
            raise InvalidSpec(f"method moments takes images of at most {MAXIMUM_DIMENSIONS} numbers.")
        if self.subspace_share + self.means_share >= 1:
            raise InvalidSpec("subspace_share and means_share must leave something for the covariances.")
        rank = min(self.subspace_dimensions, schema.dimensions)
        loudest = MAXIMUM_NOISE_STDDEV
        common = {"records_per_unit": schema.records_per_unit, "noise_stddev": loudest}
        subspace = OuterProductSum(num_groups=1, dimensions=schema.dimensions, **common)
        means = VectorSum(num_groups=schema.num_classes, dimensions=rank, count_weight=COUNT_WEIGHT, **common)
        covariances = OuterProductSum(num_groups=schema.num_classes, dimensions=rank, **common)
        covariances_share = 1 - self.subspace_share - self.means_share
        return Plan(
            releases=(
                _calibrated(subspace, self.subspace_share, units),
                _calibrated(means, self.means_share, units),
                _calibrated(covariances, covariances_share, units),
            )
        )

    def start(self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, device: str) -> MomentsLoop:
        """A loop over the three releases; nothing in it is random but the noise."""
        return MomentsLoop(self, plan, dataset)


def _shortened(vectors: Floats) -> Floats:
    """Rows longer than 1 scaled back to 1, as the mechanism does."""
    lengths: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1.0)


def _calibrated(mechanism: Moment, share: float, units: int) -> PlannedRelease:
    """The release with its noise, on the finest grid on which that noise can be drawn."""
    part, grid = math.floor(share * units), mechanism.grid
    while grid >= _COARSEST_GRID:
        candidate = mechanism.model_copy(update={"grid": grid})
        sensitivity_squared = candidate.sensitivity_squared(NeighboringRelation.ZERO_OUT)
        stddev = smallest_noise_stddev(sensitivity_squared, 1, part)
        if stddev <= MAXIMUM_NOISE_STDDEV:
            return PlannedRelease(mechanism=candidate.model_copy(update={"noise_stddev": stddev}))
        grid //= 2
    raise InfeasiblePlan("epsilon is too small for method moments: raise epsilon.")


class MomentsLoop:
    """The three releases of a run; state is not kept, replaying stored sums is cheap."""

    def __init__(self, parameters: Moments, plan: Plan, dataset: Dataset) -> None:
        mechanisms = [release.mechanism for release in plan.releases]
        self._mechanisms: list[Moment] = [item for item in mechanisms if isinstance(item, OuterProductSum | VectorSum)]
        self._schema = dataset.schema
        self._data = dataset.train
        self._clip_norm = parameters.clip_norm * math.sqrt(dataset.schema.dimensions)
        self._residual_norm = parameters.residual_norm
        self.fit = GaussianFit()

    @property
    def steps(self) -> int:
        """Three."""
        return len(self._mechanisms)

    def may_stop_before(self, step: int) -> bool:
        """Never: each release needs the one before it, and the generator all three."""
        return False

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Make release `step` and keep what it says."""
        mechanism = self._mechanisms[step]
        contributions = (self._images, self._coordinates, self._residuals)[step]
        released = mechanism.release(contributions, step=step, account=account, noise=noise)
        if step == 0:
            self.fit.learn_subspace(released[0], self._mechanisms[1].dimensions)
        elif step == 1:
            self.fit.learn_means(released)
        else:
            scale = self._residual_norm**2
            self.fit.learn_covariances(released * scale, mechanism.noise_stddev / mechanism.grid**2 * scale)

    def generator(self) -> Generator:
        """The class-conditional Gaussian."""
        from datalens_service.models.generator import Generator

        return Generator("gaussian", self._schema, {}, self.fit.tensors(self._clip_norm))

    def start_generator(self) -> None:
        """There is no start before the releases."""

    def state(self) -> dict[str, np.ndarray]:
        """Empty: stored sums are replayed."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing to restore."""

    def _images(self) -> Vectors:
        pixels = self._data.images.transpose(0, 3, 1, 2).reshape(len(self._data), -1)
        everyone = np.zeros(len(self._data), dtype=np.int64)
        return Vectors(pixels / (255.0 * self._clip_norm), everyone, self._data.unit_ids)

    def _coordinates(self) -> Vectors:
        return Vectors(_shortened(self._images().values) @ self.fit.basis, self._data.labels, self._data.unit_ids)

    def _residuals(self) -> Vectors:
        residuals = self._coordinates().values - self.fit.means[self._data.labels]
        return Vectors(residuals / self._residual_norm, self._data.labels, self._data.unit_ids)
