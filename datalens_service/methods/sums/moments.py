"""Moments: one noisy subspace, then a noisy mean and covariance per class.

Three releases: Σ x·xᵀ pooled → subspace; counts and Σ Vᵀx per class → means; Σ r·rᵀ per class → covariances.
Everything after a release is post-processing.
"""

from collections.abc import Generator as Coroutine
from typing import Any, Literal, NamedTuple

from pydantic import Field

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Integer, Number
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import OuterProductSum, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import Plan
from datalens_service.methods.facts import NEXT_TO_NONE, Facts, Levels
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.sums.record_sums import (
    COUNT_WEIGHT,
    ImageVectors,
    SummedImages,
    calibrate,
    list_sums,
    pooled_vectors,
)
from datalens_service.models.generators.class_shares import estimate_shares
from datalens_service.models.generators.gaussian.gaussian import GaussianFit
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV


class Moments(SummedImages):
    """Parameters of the moments method.

    The lengths are public constants, chosen on MNIST (docs/methods.md), never from the data at hand.
    """

    facts = Facts(
        title="Moments", summary="a noisy mean and covariance of each class",
        result="generator", public_images=None, levels=Levels(100), memory=NEXT_TO_NONE,
        measured_as="moments", image_seconds=1e-4,
    )  # fmt: skip

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

    def working_bytes(self, schema: Schema) -> float:
        return self.bytes_of_products(schema, self.subspace_dimensions, schema.num_classes)

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
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
                calibrate(subspace, self.subspace_share * ledger_units),
                calibrate(means, self.means_share * ledger_units),
                calibrate(covariances, covariances_share * ledger_units),
            )
        )

    def basis_columns(self, schema: Schema) -> int:
        """Count the directions of the released Gaussian: those of the subspace, and one for the centre."""
        return min(self.subspace_dimensions, self.summed_dimensions(schema)) + bool(self.center)

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        view, fit = yield from fit_moments(self, plan, records)
        model = Generator("gaussian", records.schema, {}, view.lift(fit.tensors(view.clip_norm)))
        return Outcome(model.with_class_shares(fit.shares))


class ClassMoments(NamedTuple):
    """The values that contributions use: public lengths, and the fit to the releases so far."""

    view: ImageVectors
    fit: GaussianFit
    residual_norm: float


def class_vectors(rows: Rows, measured: ClassMoments) -> GroupedVectors:
    """Contribution: images in the released subspace, by their class."""
    coordinates = measured.view.coordinates(rows.values, measured.fit.basis)
    return GroupedVectors(coordinates, rows.labels, rows.units)


def class_residuals(rows: Rows, measured: ClassMoments) -> GroupedVectors:
    """Contribution: differences between images and the released means of their classes."""
    coordinates = measured.view.coordinates(rows.values, measured.fit.basis)
    away = coordinates - measured.fit.means[rows.labels]
    return GroupedVectors(away / measured.residual_norm, rows.labels, rows.units)


def fit_moments(
    parameters: Moments, plan: Plan, records: PrivateRecords
) -> Coroutine[Ask, Any, tuple[ImageVectors, GaussianFit]]:
    """Ask for the three sums; return the view of images, and the Gaussians in units of the clipping norm."""
    subspace, means, covariances = list_sums(plan)
    view = ImageVectors(records.schema, parameters.clip_norm, parameters.center, parameters.frequencies)
    fit, scale = GaussianFit(), parameters.residual_norm**2
    released = yield Ask(records, subspace, pooled_vectors, view)
    fit.estimate_subspace(released[0], means.dimensions)
    measured = ClassMoments(view, fit, parameters.residual_norm)
    released = yield Ask(records, means, class_vectors, measured)
    fit.estimate_means(released)
    fit.shares = estimate_shares(released[:, 0], means.noise_stddev / COUNT_WEIGHT)
    released = yield Ask(records, covariances, class_residuals, measured)
    fit.estimate_covariances(released * scale, covariances.noise_stddev / covariances.grid**2 * scale)
    return view, fit
