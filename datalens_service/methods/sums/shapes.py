"""Shapes: moments of signed distances instead of pixels, so that samples have sharp outlines.

Three releases: counts and sums of vectors per class → means; Σ r·rᵀ pooled, of the distances from the class means →
the variation that all classes share; Σ r·rᵀ per class in the subspace of that → how each class departs from it. The
vector of a record is a function of its image alone (models/generators/level_sets/level_sets.py). Before them, unless
the client says what images show, one noisy count of drawings decides. Everything after a release is post-processing.
"""

from collections.abc import Generator as Coroutine
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field

from datalens_service.base.arrays import Floats
from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Integer, Number
from datalens_service.data.dataset import Images, Schema
from datalens_service.mechanisms import OuterProductSum, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import Method, Plan
from datalens_service.methods.facts import SAMPLES_AND_NETWORKS, Facts, Levels
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.sums.content_count import count_drawings, plan_count, read_count
from datalens_service.methods.sums.record_sums import COUNT_WEIGHT, calibrate, list_sums
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.class_shares import estimate_shares
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.level_sets.hierarchical_gaussian import HierarchicalFit
from datalens_service.models.generators.level_sets.level_sets import Content, LevelSets
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, TrainingRandomness

# Largest distance of a vector from the codec's origin, and from the mean of its class: constants of MNIST and of
# Fashion-MNIST (docs/findings.md), which do not depend on the resolution.
_VECTOR_NORMS: Final[dict[str, float]] = {"drawings": 28.0, "objects": 104.0}
_RESIDUAL_NORMS: Final[dict[str, float]] = {"drawings": 18.0, "objects": 61.0}


class Shapes(Method):
    """Parameters of the shapes method; constants were chosen on MNIST and Fashion-MNIST (docs/methods.md)."""

    facts = Facts(
        title="Shapes", summary="noisy means and covariances of outlines",
        result="generator", public_images=None, levels=Levels(30, 300), memory=SAMPLES_AND_NETWORKS,
        measured_as="shapes", image_seconds=1.3e-3,
    )  # fmt: skip

    name: Literal["shapes"] = "shapes"
    content: Content | Literal["measured"] = Field(
        default="measured",
        description="What images show on a dark ground: `drawings` are bright strokes, `objects` have grey values "
        "inside their outline; `measured`: what most images show by a noisy count, for 1 % of μ².",
    )
    subspace_dimensions: Integer = Field(default=60, ge=1, le=512, description="In which classes differ in width.")
    means_share: Number = Field(default=0.15, gt=0, lt=1, description="Share of μ² for class counts and means.")
    shared_share: Number = Field(default=0.30, gt=0, lt=1, description="Share of μ² for what all classes share.")
    spread: Number = Field(default=1.15, gt=0, le=10, description="Factor by which samples spread wider than records.")
    accepted: Number = Field(
        default=0.25, ge=0.1, le=1, description="Share of samples that are handed out: the sharpest."
    )

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        """Plan the three releases to cost at most `ledger_units`; before them the count, if content is measured."""
        rest = 1 - self.means_share - self.shared_share
        if rest <= 0:
            raise InvalidSpec("⟦method.means_share⟧ and ⟦method.shared_share⟧ must leave something for the classes.")
        common = {"records_per_unit": schema.records_per_unit, "noise_stddev": MAXIMUM_NOISE_STDDEV}
        counts = []
        if self.content == "measured":
            counts = [plan_count(schema, ledger_units)]
            ledger_units -= counts[0].cost()
        dimensions = self.dimensions(schema)
        rank = min(self.subspace_dimensions, dimensions)
        means = VectorSum(num_groups=schema.num_classes, dimensions=dimensions, count_weight=COUNT_WEIGHT, **common)
        shared = OuterProductSum(num_groups=1, dimensions=dimensions, **common)
        classes = OuterProductSum(num_groups=schema.num_classes, dimensions=rank, **common)
        return Plan(
            releases=(
                *counts,
                calibrate(means, self.means_share * ledger_units),
                calibrate(shared, self.shared_share * ledger_units),
                calibrate(classes, rest * ledger_units),
            )
        )

    def dimensions(self, schema: Schema) -> int:
        """Return the length of the summed vectors; before the content is known, that of the longest."""
        contents: list[Content] = ["drawings", "objects"] if self.content == "measured" else [self.content]
        return max(LevelSets(schema, content).dimensions for content in contents)

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        fitted = yield from fit_shapes(self, plan, records, inputs.randomness)
        return Outcome(fitted.generator)


class Encoding(NamedTuple):
    """The values that contributions use: public lengths, released means (classes, dimensions) and basis.

    Vectors shorter than `width`, the number of columns that the mechanism sums, end in zeros.
    """

    codec: LevelSets
    vector_norm: float
    residual_norm: float
    fit: HierarchicalFit
    width: int


def encode(rows: Rows, codec: LevelSets) -> Floats:
    """Encode images as vectors of any length."""
    return codec.encode(rows.values)


def redraw(rows: Rows, codec: LevelSets) -> Images:
    """Encode images and decode them again, as samples are."""
    return codec.decode_records(rows.values)


def class_vectors(rows: Rows, encoding: Encoding) -> GroupedVectors:
    """Contribution: vectors around the origin, in units of their largest length."""
    return GroupedVectors(_padded(_vectors(rows, encoding), encoding.width), rows.labels, rows.units)


def shared_residuals(rows: Rows, encoding: Encoding) -> GroupedVectors:
    """Contribution: distances from the released class means, of all classes together."""
    values = _padded(_residuals(rows, encoding), encoding.width)
    return GroupedVectors(values, np.zeros(len(rows.labels), dtype=np.int64), rows.units)


def class_residuals(rows: Rows, encoding: Encoding) -> GroupedVectors:
    """Contribution: the same distances in the released subspace, by class."""
    values = exact_products(_residuals(rows, encoding), encoding.fit.basis)
    return GroupedVectors(_padded(values, encoding.width), rows.labels, rows.units)


def _vectors(rows: Rows, encoding: Encoding) -> Floats:
    return on_grid((rows.values - encoding.codec.origin()) / encoding.vector_norm)


def _residuals(rows: Rows, encoding: Encoding) -> Floats:
    away = _vectors(rows, encoding) * encoding.vector_norm - encoding.fit.means[rows.labels]
    return on_grid(away / encoding.residual_norm)


def _padded(values: Floats, width: int) -> Floats:
    missing = width - values.shape[1]
    return np.pad(values, ((0, 0), (0, missing))) if missing else values


class FittedShapes(NamedTuple):
    """Results that later steps of a run use: records as vectors, their codec, and the released Gaussian."""

    encoded: PrivateRecords
    codec: LevelSets
    generator: Generator


def fit_shapes(
    parameters: Shapes, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness
) -> Coroutine[Ask, Any, FittedShapes]:
    """Ask for the count, if content is measured, and for the three sums.

    Vectors are padded with zeros where the content leaves them shorter than planned.
    """
    *counts, means, shared, classes = list_sums(plan)
    content: Any = parameters.content
    for count in counts:
        content = read_count((yield Ask(records, count, count_drawings, None)))
    codec, fit = LevelSets(records.schema, content), HierarchicalFit()
    encoded, used = records.map(encode, codec), codec.dimensions
    norm, residual_norm = _VECTOR_NORMS[content], _RESIDUAL_NORMS[content]
    scale = residual_norm**2

    seen = Encoding(codec, norm, residual_norm, fit, means.dimensions)
    released = yield Ask(encoded, means, class_vectors, seen)
    stddev = means.noise_stddev / means.grid * norm
    fit.estimate_means(released[:, 0], released[:, 1 : used + 1] * norm, stddev)
    shares = estimate_shares(released[:, 0], means.noise_stddev / COUNT_WEIGHT)

    released = yield Ask(encoded, shared, shared_residuals, seen._replace(width=shared.dimensions))
    stddev = shared.noise_stddev / shared.grid**2 * scale
    fit.estimate_shared(released[0, :used, :used] * scale, stddev, classes.dimensions)

    released = yield Ask(encoded, classes, class_residuals, seen._replace(width=classes.dimensions))
    rank, stddev = fit.basis.shape[1], classes.noise_stddev / classes.grid**2 * scale
    fit.estimate_classes(released[:, :rank, :rank] * scale, stddev)
    generator = _as_generator(parameters, records.schema, codec, fit, randomness)
    return FittedShapes(encoded, codec, generator.with_class_shares(shares))


def _as_generator(
    parameters: Shapes, schema: Schema, codec: LevelSets, fit: HierarchicalFit, randomness: TrainingRandomness
) -> Generator:
    """Build the class-conditional Gaussian over signed distances."""
    from datalens_service.models.generators.level_sets import shapes

    settings: dict[str, Any] = {"content": codec.content, "spread": parameters.spread}
    parts = {"basis": fit.basis, "means": fit.means + codec.origin(), "factors": fit.factors}
    tensors = {name: np.ascontiguousarray(part, dtype=np.float32) for name, part in parts.items()}
    seed = randomness.seed("shapes.tolerances")
    limits = shapes.tolerances(tensors, settings, schema, parameters.accepted, seed)
    return Generator("shapes", schema, settings, tensors | {"tolerances": limits})
