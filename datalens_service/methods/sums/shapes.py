"""Shapes: moments of signed distances instead of pixels, so that samples have sharp outlines.

Three releases: counts and sums of vectors per class → means; Σ r·rᵀ pooled, of the distances from the class means →
what all classes share; Σ r·rᵀ per class in the subspace of that → how each class departs from it. The vector of a
record is a function of its image alone (models/generators/outlines/level_sets.py). Before them, unless the client says
what images show, one noisy count of drawings decides. Whatever follows a release is post-processing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.data.dataset import Dataset, Images, Schema
from datalens_service.errors import InvalidSpec
from datalens_service.mechanisms import Account, OuterProductSum, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.methods.base import ExecutionOptions, Method, Plan
from datalens_service.methods.sums.content_count import count_drawings, plan_count, read_count
from datalens_service.methods.sums.record_sums import COUNT_WEIGHT, StatelessRun, calibrated, list_sums
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.outlines.hierarchical_gaussian import HierarchicalFit
from datalens_service.models.generators.outlines.level_sets import Content, LevelSets
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from datalens_service.strict import Integer, Number

if TYPE_CHECKING:
    from datalens_service.models.generators.generator import Generator

PRIVATE_READS = ("training",)

Floats = NDArray[np.float64]

# Largest distance of a vector from the codec's origin, and from the mean of its class: constants of MNIST and of
# Fashion-MNIST (docs/findings.md), which do not depend on the resolution.
_VECTOR_NORMS: Final[dict[str, float]] = {"drawings": 28.0, "objects": 104.0}
_RESIDUAL_NORMS: Final[dict[str, float]] = {"drawings": 18.0, "objects": 61.0}


class Shapes(Method):
    """Parameters of the shapes method; constants were chosen on MNIST and Fashion-MNIST (docs/methods.md)."""

    name: Literal["shapes"] = "shapes"
    content: Content | Literal["measured"] = Field(
        default="measured",
        description="What images show on a dark ground: `drawings` are bright strokes, `objects` have grey values "
        "inside their outline; `measured`: what most images show by a noisy count, for 1 % of μ².",
    )
    subspace_dimensions: Integer = Field(default=60, ge=1, le=512, description="In which classes differ in width.")
    means_share: Number = Field(default=0.15, gt=0, lt=1, description="Share of μ² for class counts and means.")
    shared_share: Number = Field(default=0.30, gt=0, lt=1, description="Share of μ² for what all classes share.")
    spread: Number = Field(default=1.15, gt=0, le=10, description="How much wider samples lie than records.")
    accepted: Number = Field(
        default=0.25, ge=0.1, le=1, description="Share of samples that are handed out: the sharpest."
    )

    def plan(self, schema: Schema, units: int) -> Plan:
        """The three releases, calibrated so that together they cost at most `units`; before them the count, if any.

        Raises:
            InfeasiblePlan: The noise would have to be larger than the sampler can draw.
            InvalidSpec: The shares leave nothing for the covariances.
        """
        rest = 1 - self.means_share - self.shared_share
        if rest <= 0:
            raise InvalidSpec("⟦method.means_share⟧ and ⟦method.shared_share⟧ must leave something for the classes.")
        common = {"records_per_unit": schema.records_per_unit, "noise_stddev": MAXIMUM_NOISE_STDDEV}
        counts = []
        if self.content == "measured":
            counts = [plan_count(schema, units)]
            units -= counts[0].cost()
        dimensions = self.dimensions(schema)
        rank = min(self.subspace_dimensions, dimensions)
        means = VectorSum(num_groups=schema.num_classes, dimensions=dimensions, count_weight=COUNT_WEIGHT, **common)
        shared = OuterProductSum(num_groups=1, dimensions=dimensions, **common)
        classes = OuterProductSum(num_groups=schema.num_classes, dimensions=rank, **common)
        return Plan(
            releases=(
                *counts,
                calibrated(means, self.means_share * units),
                calibrated(shared, self.shared_share * units),
                calibrated(classes, rest * units),
            )
        )

    def rationale(self) -> str:
        """They are to be looked at."""
        return (
            "Images are made to look like the private ones: outlines are modelled instead of pixels, so that they are "
            "sharp, and the sharpest are handed out."
        )

    def dimensions(self, schema: Schema) -> int:
        """Length of the summed vectors; before the content is known, that of the longest."""
        contents: list[Content] = ["drawings", "objects"] if self.content == "measured" else [self.content]
        return max(LevelSets(schema, content).dimensions for content in contents)

    def create_run(
        self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> ShapesRun:
        """A run of the releases; beside noise, only the samples that set the tolerance are random: public."""
        return ShapesRun(self, plan, dataset, randomness)


class ShapesRun(StatelessRun):
    """The releases of a run: vectors are padded with zeros where the content leaves them shorter than planned."""

    def __init__(self, parameters: Shapes, plan: Plan, dataset: Dataset, randomness: TrainingRandomness) -> None:
        self._parameters = parameters
        self._mechanisms = list_sums(plan)
        self._schema = dataset.schema
        self._data = dataset.train
        self._dimensions = parameters.dimensions(dataset.schema)
        self._seed = randomness.seed("shapes.tolerances")
        self._encoded: Floats | None = None
        self._fit = HierarchicalFit()
        self._first_sum = 0
        if parameters.content == "measured":
            self._first_sum = 1
        else:
            self._choose_content(parameters.content)

    @property
    def steps(self) -> int:
        """Three, and one for the count."""
        return len(self._mechanisms)

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Make release `step` and keep what it says."""
        number, mechanism = step - self._first_sum, self._mechanisms[step]
        sums = self._means, self._shared, self._classes
        contributions = partial(count_drawings, self._data) if number < 0 else sums[number]
        released = mechanism.release(contributions, step=step, account=account, noise=noise)
        self._learn(number, released)

    def _learn(self, number: int, released: Floats) -> None:
        """From the count (-1), the means (0), what classes share (1) or what each adds (2)."""
        if number < 0:
            self._choose_content(read_count(released))
            return
        mechanism, used = self._mechanisms[number + self._first_sum], self._codec.dimensions
        stddev, scale = mechanism.noise_stddev / mechanism.grid**2, self._residual_norm**2
        if number == 0:
            sum_stddev = mechanism.noise_stddev / mechanism.grid * self._vector_norm
            self._fit.estimate_means(released[:, 0], released[:, 1 : used + 1] * self._vector_norm, sum_stddev)
        elif number == 1:
            rank = self._mechanisms[-1].dimensions
            self._fit.estimate_shared(released[0, :used, :used] * scale, stddev * scale, rank)
        else:
            rank = self._fit.basis.shape[1]
            self._fit.estimate_classes(released[:, :rank, :rank] * scale, stddev * scale)

    def _choose_content(self, content: Content) -> None:
        self._codec = LevelSets(self._schema, content)
        self._vector_norm, self._residual_norm = _VECTOR_NORMS[content], _RESIDUAL_NORMS[content]

    def result(self) -> Generator:
        """The class-conditional Gaussian over signed distances."""
        from datalens_service.models.generators.generator import Generator
        from datalens_service.models.generators.outlines import shapes

        settings: dict[str, Any] = {"content": self._codec.content, "spread": self._parameters.spread}
        parts = {
            "basis": self._fit.basis,
            "means": self._fit.means + self._codec.origin(),
            "factors": self._fit.factors,
        }
        tensors = {name: np.ascontiguousarray(part, dtype=np.float32) for name, part in parts.items()}
        limits = shapes.tolerances(tensors, settings, self._schema, self._parameters.accepted, self._seed)
        return Generator("shapes", self._schema, settings, tensors | {"tolerances": limits})

    @property
    def ink_level(self) -> float:
        """Brightness of ink, of the released content."""
        return self._codec.ink_level

    def redrawn_records(self) -> Images:
        """Private: each record, encoded and decoded again, as samples are."""
        return self._codec.decode_records(self._encoded_records())

    def _encoded_records(self) -> Floats:
        """Private (n, dimensions): vectors of records, of any length."""
        if self._encoded is None:
            self._encoded = self._codec.encode(self._data.images)
        return self._encoded

    def _vectors(self) -> Floats:
        """Private (n, dimensions): records as vectors around the origin, in units of their largest length."""
        return on_grid((self._encoded_records() - self._codec.origin()) / self._vector_norm)

    def _means(self) -> GroupedVectors:
        return GroupedVectors(self._padded(self._vectors(), 0), self._data.labels, self._data.unit_ids)

    def _residuals(self) -> Floats:
        """Private (n, dimensions): distances from the released class means, in units of their largest length."""
        away = self._vectors() * self._vector_norm - self._fit.means[self._data.labels]
        return on_grid(away / self._residual_norm)

    def _shared(self) -> GroupedVectors:
        groups = np.zeros(len(self._data), dtype=np.int64)
        return GroupedVectors(self._padded(self._residuals(), 1), groups, self._data.unit_ids)

    def _classes(self) -> GroupedVectors:
        values = exact_products(self._residuals(), self._fit.basis)
        return GroupedVectors(self._padded(values, 2), self._data.labels, self._data.unit_ids)

    def _padded(self, values: Floats, number: int) -> Floats:
        """As wide as the mechanism sums them."""
        missing = self._mechanisms[number + self._first_sum].dimensions - values.shape[1]
        return np.pad(values, ((0, 0), (0, missing))) if missing else values
