"""Moments: one noisy subspace, then a noisy mean and covariance per class.

Three releases: Σ x·xᵀ pooled → subspace; counts and Σ Vᵀx per class → means; Σ r·rᵀ per class → covariances.
Whatever follows a release is post-processing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidSpec
from datalens_service.mechanisms import Account, OuterProductSum, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import Contribution, PrivateRecords, Rows
from datalens_service.methods.base import ExecutionOptions, Plan
from datalens_service.methods.sums.record_sums import (
    COUNT_WEIGHT,
    ImageVectors,
    StatelessRun,
    SummedImages,
    calibrated,
    list_sums,
    pooled_vectors,
)
from datalens_service.models.generators.gaussian.gaussian import GaussianFit
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from datalens_service.strict import Integer, Number


class Moments(SummedImages):
    """Parameters of the moments method.

    The lengths are public constants, chosen on MNIST (docs/methods.md), never from the data at hand.
    """

    name: Literal["moments"] = "moments"
    subspace_dimensions: Integer = Field(default=60, ge=1, le=512)
    clip_norm: Number = Field(
        default=0.35, gt=0, le=1, description="Largest length of an image, as a fraction of an all-white one."
    )
    residual_norm: Number = Field(
        default=0.65, gt=0, le=1, description="Largest distance from the class mean, as a fraction of clip_norm."
    )
    subspace_share: Number = Field(default=0.30, gt=0, lt=1, description="Share of μ² for the subspace.")
    means_share: Number = Field(default=0.20, gt=0, lt=1, description="Share of μ² for class counts and means.")

    def plan(self, schema: Schema, units: int) -> Plan:
        """The three releases, calibrated so that together they cost at most `units`."""
        if self.subspace_share + self.means_share >= 1:
            raise InvalidSpec(
                "⟦method.subspace_share⟧ and ⟦method.means_share⟧ must leave something for the covariances."
            )
        summed = self.summed_dimensions(schema)
        rank = min(self.subspace_dimensions, summed)
        loudest = MAXIMUM_NOISE_STDDEV
        common = {"records_per_unit": schema.records_per_unit, "noise_stddev": loudest}
        subspace = OuterProductSum(num_groups=1, dimensions=summed, **common)
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

    def basis_columns(self, schema: Schema) -> int:
        """Directions in which the released Gaussian lies: those of the subspace, and one for the centre."""
        return min(self.subspace_dimensions, self.summed_dimensions(schema)) + bool(self.center)

    def start_run(
        self, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> MomentsRun:
        """A run of the three releases; nothing in it is random but the noise."""
        return MomentsRun(self, plan, records)


class Measured(NamedTuple):
    """What contributions are made with: public lengths, and what the releases so far say."""

    view: ImageVectors
    fit: GaussianFit
    residual_norm: float


def class_vectors(rows: Rows, measured: Measured) -> GroupedVectors:
    """Contribution: images in the released subspace, by their class."""
    coordinates = measured.view.coordinates(rows.values, measured.fit.basis)
    return GroupedVectors(coordinates, rows.labels, rows.units)


def class_residuals(rows: Rows, measured: Measured) -> GroupedVectors:
    """Contribution: what lies between an image and the released mean of its class."""
    coordinates = measured.view.coordinates(rows.values, measured.fit.basis)
    away = coordinates - measured.fit.means[rows.labels]
    return GroupedVectors(away / measured.residual_norm, rows.labels, rows.units)


class MomentsRun(StatelessRun):
    """The three releases of a run."""

    def __init__(self, parameters: Moments, plan: Plan, records: PrivateRecords) -> None:
        self._mechanisms = list_sums(plan)
        self._records = records
        self.view = ImageVectors(records.schema, parameters.clip_norm, parameters.center, parameters.frequencies)
        self._residual_norm = parameters.residual_norm
        self.fit = GaussianFit()

    @property
    def steps(self) -> int:
        """Three."""
        return len(self._mechanisms)

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Make release `step` and keep what it says."""
        mechanism = self._mechanisms[step]
        contribution, seen = self._question(step)
        released = self._records.release(mechanism, contribution, seen, step=step, account=account, noise=noise)
        if step == 0:
            self.fit.estimate_subspace(released[0], self._mechanisms[1].dimensions)
        elif step == 1:
            self.fit.estimate_means(released)
        else:
            scale = self._residual_norm**2
            self.fit.estimate_covariances(released * scale, mechanism.noise_stddev / mechanism.grid**2 * scale)

    def result(self) -> Generator:
        """The class-conditional Gaussian."""
        tensors = self.view.lift(self.fit.tensors(self.view.clip_norm))
        return Generator("gaussian", self._records.schema, {}, tensors)

    def _question(self, step: int) -> tuple[Contribution, object]:
        """What release `step` sums, and the released value that it is made with."""
        if step == 0:
            return pooled_vectors, self.view
        return (class_vectors, class_residuals)[step - 1], Measured(self.view, self.fit, self._residual_norm)
