"""Pooled moments: the mean of all records, class means shrunk towards it, and one covariance for all classes.

Three releases: Σ x → center; counts and Σ (x − center) per class → class means; Σ r·rᵀ over all classes → how images of
a class vary. x are the lowest cosine frequencies of an image, so many as the budget pays for. Everything after a
release is post-processing.

With few records a covariance for each class is noise; one for all is not (linear discriminant analysis rests on the
same assumption: Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, section 4.3).
"""

from __future__ import annotations

import operator
from collections.abc import Generator as Coroutine
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Integer, Number
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import OuterProductSum, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import Plan
from datalens_service.methods.facts import LEAST_EVIDENCE, NEXT_TO_NONE, Facts, Levels
from datalens_service.methods.public_start import PublicImages, describe_source, spread_over
from datalens_service.methods.script import Ask, ExecutionOptions, Outcome, RunInputs, Script
from datalens_service.methods.sums.record_sums import (
    COUNT_WEIGHT,
    MAXIMUM_DIMENSIONS,
    ImageVectors,
    SummedImages,
    calibrate,
    list_sums,
    pooled_vectors,
    visible_detail,
)
from datalens_service.models.generators.class_shares import estimate_shares
from datalens_service.models.generators.dct import lowest_of
from datalens_service.models.generators.edges import wants_edges
from datalens_service.models.generators.gaussian.pooled_gaussian import PooledGaussianFit
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.accounting import mu_of_ledger_units
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, Integers

if TYPE_CHECKING:
    from datalens_service.models.generators.denoiser.public_denoiser import PublicDenoiser

_FREQUENCIES_PER_EVIDENCE, _COVARIANCE_FREQUENCIES_PER_EVIDENCE = 15.0, 5.5
_GROWTH: Final = 0.44
_FEWEST, _MOST = 16, 1024
_WEIGHTS: Final = (5, 7)
_START_STDDEV: Final = 0.5
_DENOISER_LENGTH: Final = 20
"""Fitting a denoiser takes this many times as long as a sum over records."""
_MOST_PUBLIC: Final = 20_000
_MOST_TEXTURE: Final = 0.5
"""Share of the mean variance drawn in every frequency, above which images look noisy."""
_BYTES_OF_A_FREQUENCY: Final = 24
"""Bytes per frequency of each record, while it is summed."""
_BYTES_OF_A_DRAWN_NUMBER: Final = 20_000
"""Bytes per number of an image, for the thousands drawn and measured at once: `benchmarks.owners` of 31652610."""


class PooledMoments(SummedImages):
    """Parameters of the pooled moments method; lengths are public constants (docs/methods.md)."""

    facts = Facts(
        title="Pooled moments", summary="noisy means of classes and one noisy covariance",
        result="generator", public_images="finish", levels=Levels(LEAST_EVIDENCE), memory=NEXT_TO_NONE,
        measured_as="pooled_moments", image_seconds=4e-4,
    )  # fmt: skip

    name: Literal["pooled_moments"] = "pooled_moments"
    center: Number = Field(default=0.5, ge=0, le=1, description="Brightness that lengths are measured from.")
    frequencies: Integer | None = Field(
        default=None,
        ge=1,
        le=MAXIMUM_DIMENSIONS,
        description="Lowest cosine frequencies of an image that are summed, of all colours together. Left out: planned "
        "from the number of records and of classes and from ε.",
    )
    clip_norm: Number = Field(
        default=0.5, gt=0, le=1, description="Largest length of an image less `center`, as a fraction of a white one."
    )
    residual_norm: Number = Field(
        default=0.36, gt=0, le=1, description="Largest distance from the mean, as a fraction of clip_norm."
    )
    center_share: Number = Field(default=0.10, gt=0, lt=1, description="Share of μ² for the mean of all records.")
    means_share: Number = Field(default=0.45, gt=0, lt=1, description="Share of μ² for class counts and means.")
    texture: Number = Field(
        default=0.0,
        ge=0,
        le=1,
        exclude_if=operator.not_,
        description="Share of the mean variance that is drawn in every frequency. With 1 images "
        "look like noise, and teach classifiers more where noise hides the classes.",
    )
    start_stddev: Number = Field(
        default=_START_STDDEV,
        gt=0,
        le=10,
        exclude_if=lambda stddev: stddev == _START_STDDEV,
        description="With public images: noise on drawn pixels from −1 to 1 at which a denoiser of theirs begins. With "
        "more, images look more like public ones, and less of their class.",
    )

    def evidence_levels(self) -> Levels | None:
        return Levels(LEAST_EVIDENCE, textured=self.texture > _MOST_TEXTURE)

    def draws_edges(self, schema: Schema) -> bool:
        """Tell whether samples are sharpened, unless public images finish them."""
        return self.texture == 0 and wants_edges(schema)

    def working_bytes(self, schema: Schema) -> float:
        records = schema.num_units * schema.dimensions
        summed = schema.num_units * min(self.frequencies or _MOST, schema.dimensions)
        return 2 * records + max(_BYTES_OF_A_FREQUENCY * summed, _BYTES_OF_A_DRAWN_NUMBER * schema.dimensions)

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        if self.center_share + self.means_share >= 1:
            raise InvalidSpec("⟦method.center_share⟧ and ⟦method.means_share⟧ must leave something for the covariance.")
        frequencies = min(self.frequencies or plan_frequencies(schema, ledger_units), schema.dimensions)
        varying = (
            frequencies if self.frequencies else min(frequencies, plan_covariance_frequencies(schema, ledger_units))
        )
        common = {"records_per_unit": schema.records_per_unit, "noise_stddev": MAXIMUM_NOISE_STDDEV}
        vectors = {"dimensions": frequencies, "count_weight": COUNT_WEIGHT, **common}
        center = VectorSum(num_groups=1, **vectors)
        means = VectorSum(num_groups=schema.num_classes, **vectors)
        covariance = OuterProductSum(num_groups=1, weights=_WEIGHTS, dimensions=varying, **common)
        return Plan(
            releases=(
                calibrate(center, self.center_share * ledger_units),
                calibrate(means, self.means_share * ledger_units),
                calibrate(covariance, (1 - self.center_share - self.means_share) * ledger_units),
            )
        )

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        summed = list_sums(plan)[0].dimensions
        if summed >= schema.dimensions or schema.dimensions > MAXIMUM_DIMENSIONS:
            return ()
        width, height = visible_detail(schema, summed)
        return (
            f"The images have about the detail of {width} by {height} pixels: finer detail of the private images is "
            "not learned.",
        )

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        return {0: _DENOISER_LENGTH} if public else {}

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.models.generators.denoiser.diffusion import Start

        denoiser = None if inputs.public is None else fit_denoiser(records.schema, inputs.public, inputs.options)
        view, fit = yield from fit_pooled_moments(self, plan, records)
        tensors = view.lift(fit.tensors(view.clip_norm, self.texture))
        if denoiser is None:
            settings = {"edges": True} if self.draws_edges(records.schema) else {}
            return Outcome(Generator("gaussian", records.schema, settings, tensors).with_class_shares(fit.shares))
        finished = denoiser.finish(Start("gaussian", {}, tensors), self.start_stddev)
        return Outcome(Generator("diffusion", records.schema, *finished).with_class_shares(fit.shares))


def plan_frequencies(schema: Schema, ledger_units: int) -> int:
    """Choose the number of frequencies that a class pays for; it grows slowly with μ times units per class.

    A unit of several records has as many times the noise of one, and up to as many times the signal.
    """
    evidence = schema.num_units * mu_of_ledger_units(ledger_units) / schema.num_classes
    return int(np.clip(_FREQUENCIES_PER_EVIDENCE * evidence**_GROWTH, _FEWEST, _MOST))


def plan_covariance_frequencies(schema: Schema, ledger_units: int) -> int:
    """Choose how many of them have a covariance: with more, fewer directions stand out from noise."""
    evidence = schema.num_units * mu_of_ledger_units(ledger_units)
    return int(np.clip(_COVARIANCE_FREQUENCIES_PER_EVIDENCE * evidence**_GROWTH, _FEWEST, _MOST))


class PooledStatistics(NamedTuple):
    """The values that contributions use: public lengths, and the fit to the releases so far."""

    view: ImageVectors
    fit: PooledGaussianFit
    residual_norm: float
    varying: Integers
    """Coordinates whose covariance is released."""


def class_offsets(rows: Rows, measured: PooledStatistics) -> GroupedVectors:
    """Contribution: differences between images and the released center, by class."""
    away = measured.view.vectors(rows.values) - measured.fit.center
    return GroupedVectors(away / measured.residual_norm, rows.labels, rows.units)


def pooled_residuals(rows: Rows, measured: PooledStatistics) -> GroupedVectors:
    """Contribution: differences between images and the released means of their classes."""
    means = (measured.fit.center + measured.fit.offsets)[rows.labels]
    away = (measured.view.vectors(rows.values) - means)[:, measured.varying]
    return GroupedVectors(away / measured.residual_norm, np.zeros(len(rows.labels), dtype=np.int64), rows.units)


def fit_pooled_moments(
    parameters: PooledMoments, plan: Plan, records: PrivateRecords
) -> Coroutine[Ask, Any, tuple[ImageVectors, PooledGaussianFit]]:
    """Ask for the three sums; return the view of images, and the Gaussians in units of the clipping norm."""
    center, offsets, covariance = list_sums(plan)
    if not isinstance(offsets, VectorSum) or not isinstance(covariance, OuterProductSum):
        raise TypeError("a plan of pooled moments ends with offsets and their covariance")
    varying = lowest_of(records.schema, center.dimensions, covariance.dimensions)
    view = ImageVectors(records.schema, parameters.clip_norm, parameters.center, center.dimensions)
    fit = PooledGaussianFit(parameters.residual_norm)
    released = yield Ask(records, center, pooled_vectors, view)
    fit.estimate_center(released[0], center.noise_stddev / center.grid)
    measured = PooledStatistics(view, fit, parameters.residual_norm, varying)
    released = yield Ask(records, offsets, class_offsets, measured)
    stddev = offsets.noise_stddev
    fit.estimate_offsets(released, stddev / offsets.count_weight, stddev / offsets.grid)
    fit.shares = estimate_shares(released[:, 0], stddev / offsets.count_weight)
    released = yield Ask(records, covariance, pooled_residuals, measured)
    noise_stddev = covariance.noise_stddev / covariance.weights[1] / covariance.grid**2
    fit.estimate_covariance(released[0], noise_stddev, varying)
    return view, fit


def fit_denoiser(schema: Schema, public: PublicImages, options: ExecutionOptions) -> PublicDenoiser:
    from datalens_service.models.generators.denoiser.public_denoiser import PublicDenoiser

    images, digest = spread_over(public, _MOST_PUBLIC).images, describe_source(public).sha256
    return PublicDenoiser.from_images(schema, images, digest, options.public_models, options.tell)
