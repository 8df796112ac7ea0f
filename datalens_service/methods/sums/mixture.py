"""Mixture: moments, with several Gaussians per class instead of one.

    Σ x·xᵀ pooled → subspace;  counts, means and covariances per class → where to put the first centres;
    then, `iterations` times, counts and means of the records nearest to each centre;  covariances per component.

A record belongs to the nearest component of its own class, by released centres: a function of that record
and of earlier releases. So it enters one block of each sum, as with moments, and costs the same.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from datalens_service.base.arrays import Floats
from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Integer, Number
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import OuterProductSum, PlannedRelease, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import Plan
from datalens_service.methods.facts import NEXT_TO_NONE, Facts, Levels
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.sums.moments import Moments, fit_moments
from datalens_service.methods.sums.record_sums import COUNT_WEIGHT, ImageVectors, SummedImages, calibrate, list_sums
from datalens_service.models.generators.gaussian.gaussian import GaussianFit
from datalens_service.models.generators.gaussian.mixture import MixtureFit, nearest
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

_RELEASES_OF_MOMENTS = 3


class Mixture(SummedImages):
    """Parameters of the mixture method; constants were chosen on MNIST (docs/methods.md)."""

    facts = Facts(
        title="Mixture", summary="noisy means and covariances of several parts of each class",
        result="generator", public_images=None, levels=Levels(100), memory=NEXT_TO_NONE,
        measured_as="mixture", image_seconds=1e-4,
    )  # fmt: skip

    name: Literal["mixture"] = "mixture"
    components: Integer = Field(default=10, ge=2, le=64, description="K, Gaussians per class.")
    iterations: Integer = Field(default=4, ge=1, le=20, description="How often the centres move.")
    subspace_dimensions: Integer = Field(default=60, ge=1, le=512)
    clip_norm: Number = Field(
        default=0.35, gt=0, le=1, description="Largest length of an image, as a fraction of an all-white one."
    )
    residual_norm: Number = Field(
        default=0.65, gt=0, le=1, description="Largest distance from the class mean, as a fraction of clip_norm."
    )
    component_norm: Number = Field(
        default=0.55, gt=0, le=1, description="Largest distance from a centre, as a fraction of clip_norm."
    )
    pooling: Number = Field(default=150.0, ge=0, description="Records' worth of the class in a component's covariance.")
    subspace_share: Number = Field(default=0.25, gt=0, lt=1, description="Share of μ² for the subspace.")
    means_share: Number = Field(default=0.30, gt=0, lt=1, description="Share of μ² for counts and means.")
    start_share: Number = Field(
        default=0.20, gt=0, lt=1, description="Part of the shares for means and covariances that places the centres."
    )

    def working_bytes(self, schema: Schema) -> float:
        return self.bytes_of_products(schema, self.subspace_dimensions, schema.num_classes * self.components)

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        covariances_share = 1 - self.subspace_share - self.means_share
        if covariances_share <= 0:
            raise InvalidSpec(
                "⟦method.subspace_share⟧ and ⟦method.means_share⟧ must leave something for the covariances."
            )
        classes, components = schema.num_classes, schema.num_classes * self.components
        rest, rank = 1 - self.start_share, self.rank(schema)
        return Plan(
            releases=(
                self._products(schema, 1, self.summed_dimensions(schema), self.subspace_share * ledger_units),
                self._means(schema, classes, self.means_share * self.start_share * ledger_units),
                self._products(schema, classes, rank, covariances_share * self.start_share * ledger_units),
                self._means(schema, components, self.means_share * rest * ledger_units, self.iterations),
                self._products(schema, components, rank, covariances_share * rest * ledger_units),
            )
        )

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        start = Moments(**self.model_dump(include={"clip_norm", "residual_norm", "center", "frequencies"}))
        view, fit = yield from fit_moments(start, Plan(releases=plan.releases[:_RELEASES_OF_MOMENTS]), records)
        components = MixtureFit(fit, self.components, self.pooling, inputs.randomness.numpy("mixture.centres"))
        *moves, covariances = list_sums(plan)[_RELEASES_OF_MOMENTS:]
        for move in moves:
            if not isinstance(move, VectorSum):
                raise TypeError("centres move by sums of vectors")
            released = yield Ask(records, move, component_vectors, self._seen(view, fit, components))
            stddev = move.noise_stddev
            components.estimate_centres(released, stddev / move.count_weight, stddev / move.grid)
        released = yield Ask(records, covariances, component_residuals, self._seen(view, fit, components))
        scale = self.component_norm**2
        components.estimate_covariances(released * scale, covariances.noise_stddev / covariances.grid**2 * scale)
        model = Generator("mixture", records.schema, {}, view.lift(components.tensors(view.clip_norm)))
        return Outcome(model.with_class_shares(fit.shares))

    def _seen(self, view: ImageVectors, fit: GaussianFit, components: MixtureFit) -> Components:
        return Components(view, fit.basis, components.centres, self.component_norm)

    def rank(self, schema: Schema) -> int:
        """Return the number of dimensions of the subspace."""
        return min(self.subspace_dimensions, self.summed_dimensions(schema))

    def _means(self, schema: Schema, groups: int, ledger_units: float, count: int = 1) -> PlannedRelease:
        mechanism = VectorSum(
            num_groups=groups,
            dimensions=self.rank(schema),
            count_weight=COUNT_WEIGHT,
            records_per_unit=schema.records_per_unit,
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        return calibrate(mechanism, ledger_units / count).model_copy(update={"count": count})

    def _products(self, schema: Schema, groups: int, dimensions: int, ledger_units: float) -> PlannedRelease:
        mechanism = OuterProductSum(
            num_groups=groups,
            dimensions=dimensions,
            records_per_unit=schema.records_per_unit,
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        return calibrate(mechanism, ledger_units)


class Components(NamedTuple):
    """The released values that contributions use: the view of images, a basis and centres (classes, K, q)."""

    view: ImageVectors
    basis: Floats
    centres: Floats
    component_norm: float


def component_vectors(rows: Rows, components: Components) -> GroupedVectors:
    """Contribution: images in the released subspace, by their nearest component."""
    coordinates = components.view.coordinates(rows.values, components.basis)
    return GroupedVectors(coordinates, nearest(coordinates, rows.labels, components.centres), rows.units)


def component_residuals(rows: Rows, components: Components) -> GroupedVectors:
    """Contribution: differences between images and their nearest released centres."""
    coordinates, groups, units = component_vectors(rows, components)
    away = coordinates - components.centres.reshape(-1, components.centres.shape[-1])[groups]
    return GroupedVectors(away / components.component_norm, groups, units)
