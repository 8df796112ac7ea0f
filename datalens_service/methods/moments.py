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
from datalens_service.mechanisms import Account, CrossProductSum, OuterProductSum, VectorSum
from datalens_service.mechanisms.moments import Vectors
from datalens_service.methods.base import Method, Place, Plan, PlannedRelease
from datalens_service.models.basis import dct_basis
from datalens_service.models.exact_products import exact_products, on_grid
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

# The upper triangle of a d×d matrix is released. Larger images are seen through their lowest frequencies only.
MAXIMUM_DIMENSIONS = 4096
_FREQUENCIES = 2048
_ROWS = 4096


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
            InvalidSpec: The shares leave nothing for the covariances.
        """
        if self.subspace_share + self.means_share >= 1:
            raise InvalidSpec("subspace_share and means_share must leave something for the covariances.")
        rank = min(self.subspace_dimensions, schema.dimensions)
        loudest = MAXIMUM_NOISE_STDDEV
        common = {"records_per_unit": schema.records_per_unit, "noise_stddev": loudest}
        subspace = OuterProductSum(num_groups=1, dimensions=seen_dimensions(schema), **common)
        means = VectorSum(num_groups=schema.num_classes, dimensions=rank, count_weight=COUNT_WEIGHT, **common)
        covariances = OuterProductSum(num_groups=schema.num_classes, dimensions=rank, **common)
        covariances_share = 1 - self.subspace_share - self.means_share
        return Plan(
            releases=(
                calibrated(subspace, self.subspace_share * units),
                calibrated(means, self.means_share * units),
                calibrated(covariances, covariances_share * units),
            )
        )

    def start(self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, place: Place) -> MomentsLoop:
        """A loop over the three releases; nothing in it is random but the noise."""
        return MomentsLoop(self, plan, dataset)


def seen_dimensions(schema: Schema) -> int:
    """Numbers of an image that the sums see: all of them, or its lowest frequencies."""
    return schema.dimensions if schema.dimensions <= MAXIMUM_DIMENSIONS else _FREQUENCIES


def calibrated(mechanism: Moment | CrossProductSum, units: float) -> PlannedRelease:
    """The release with the noise that makes it cost at most `units`, on the finest grid for which it can be drawn.

    Raises:
        InfeasiblePlan: On every grid the noise would be larger than the sampler can draw.
    """
    part, grid = math.floor(units), mechanism.grid
    while grid >= _COARSEST_GRID:
        candidate = mechanism.model_copy(update={"grid": grid})
        sensitivity_squared = candidate.sensitivity_squared(NeighboringRelation.ZERO_OUT)
        stddev = smallest_noise_stddev(sensitivity_squared, 1, part)
        if stddev <= MAXIMUM_NOISE_STDDEV:
            return PlannedRelease(mechanism=candidate.model_copy(update={"noise_stddev": stddev}))
        grid //= 2
    raise InfeasiblePlan("epsilon is too small for noisy sums of these images: raise epsilon.")


def sums_of(plan: Plan) -> list[Moment]:
    """Its releases of sums of records, one by one; votes are left out."""
    mechanisms = [release.mechanism for release in plan.releases for _ in range(release.count)]
    return [mechanism for mechanism in mechanisms if isinstance(mechanism, OuterProductSum | VectorSum)]


class ClippedRecords:
    """Private records as vectors in units of the clipping norm; a record may enter every sum once.

    Attributes:
        clip_norm: Length in pixel units that counts as 1.
        labels: int64 (n,).
    """

    def __init__(self, dataset: Dataset, clip_norm: float) -> None:
        self._longest = math.sqrt(dataset.schema.dimensions)
        self.clip_norm = clip_norm * self._longest
        self.labels = dataset.train.labels
        self._data = dataset.train
        seen = seen_dimensions(dataset.schema)
        self._frequencies = dct_basis(dataset.schema, seen) if seen < dataset.schema.dimensions else None

    def pooled(self) -> Vectors:
        """Whole images, not told apart by class; longer ones are scaled back by the mechanism."""
        blocks = [self._seen(self._data.images[row : row + _ROWS]) for row in range(0, len(self._data), _ROWS)]
        return self.vectors(np.concatenate(blocks), np.zeros(len(self._data), dtype=np.int64))

    def lifted(self, tensors: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        """A released model of what the sums see as one of whole images; frequencies do not depend on data."""
        if self._frequencies is None:
            return tensors
        return tensors | {"basis": np.ascontiguousarray(self._frequencies @ tensors["basis"])}

    def _seen(self, images: NDArray[np.uint8]) -> Floats:
        pixels = images.transpose(0, 3, 1, 2).reshape(len(images), -1) / 255.0
        seen = (
            pixels if self._frequencies is None else exact_products(on_grid(pixels, self._longest), self._frequencies)
        )
        return seen / self.clip_norm

    def coordinates(self, basis: Floats) -> Floats:
        """(n, q): images of length at most 1 in a released basis (d, q)."""
        return exact_products(on_grid(self.pooled().values), basis)

    def vectors(self, values: Floats, groups: NDArray[np.int64]) -> Vectors:
        """One vector per record, with its group and its unit."""
        return Vectors(values, groups, self._data.unit_ids)


class SumsLoop:
    """What loops over sums of records share: no state is kept, since replaying the stored sums is cheap."""

    def may_stop_before(self, step: int) -> bool:
        """Never: each release needs the one before it, and the generator all of them."""
        return False

    def start_generator(self) -> Generator | None:
        """There is no start before the releases."""
        return None

    def state(self) -> dict[str, np.ndarray]:
        """Empty: stored sums are replayed."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing to restore."""


class MomentsLoop(SumsLoop):
    """The three releases of a run.

    Attributes:
        records: Private.
        fit: What the releases so far say.
    """

    def __init__(self, parameters: Moments, plan: Plan, dataset: Dataset) -> None:
        self._mechanisms = sums_of(plan)
        self._schema = dataset.schema
        self.records = ClippedRecords(dataset, parameters.clip_norm)
        self._residual_norm = parameters.residual_norm
        self.fit = GaussianFit()

    @property
    def steps(self) -> int:
        """Three."""
        return len(self._mechanisms)

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Make release `step` and keep what it says."""
        mechanism = self._mechanisms[step]
        contributions = (self.records.pooled, self._coordinates, self._residuals)[step]
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

        tensors = self.records.lifted(self.fit.tensors(self.records.clip_norm))
        return Generator("gaussian", self._schema, {}, tensors)

    def _coordinates(self) -> Vectors:
        return self.records.vectors(self.records.coordinates(self.fit.basis), self.records.labels)

    def _residuals(self) -> Vectors:
        labels = self.records.labels
        residuals = self.records.coordinates(self.fit.basis) - self.fit.means[labels]
        return self.records.vectors(residuals / self._residual_norm, labels)
