"""Shapes: moments of signed distances instead of pixels, so that samples have sharp outlines.

Three releases: counts and sums of vectors per class → means; Σ r·rᵀ pooled, of the distances from the class means →
what all classes share; Σ r·rᵀ per class in the subspace of that → how each class departs from it. The vector of a
record is a function of its image alone (models/generators/level_sets.py). Whatever follows a release is
post-processing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.data.dataset import Dataset, Schema
from datalens_service.errors import InvalidSpec
from datalens_service.mechanisms import Account, OuterProductSum, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.methods.base import ExecutionOptions, Method, Plan
from datalens_service.methods.record_sums import COUNT_WEIGHT, StatelessRun, calibrated, list_sums
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.hierarchical_gaussian import HierarchicalFit
from datalens_service.models.generators.level_sets import Content, LevelSets
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from datalens_service.strict import Integer, Number

if TYPE_CHECKING:
    from datalens_service.models.generators.generator import Generator

Floats = NDArray[np.float64]

# Largest distance of a vector from the codec's origin, and from the mean of its class: constants of MNIST and of
# Fashion-MNIST (docs/image-trials.md), which do not depend on the resolution.
_VECTOR_NORMS: Final[dict[str, float]] = {"drawings": 28.0, "objects": 104.0}
_RESIDUAL_NORMS: Final[dict[str, float]] = {"drawings": 18.0, "objects": 61.0}


class Shapes(Method):
    """Parameters of the shapes method; constants were chosen on MNIST and Fashion-MNIST (docs/methods.md)."""

    name: Literal["shapes"] = "shapes"
    content: Content = Field(
        default="drawings",
        description="What images show on a dark ground, as you know without looking: `drawings` are bright strokes, "
        "`objects` have grey values inside their outline.",
    )
    subspace_dimensions: Integer = Field(default=60, ge=1, le=512, description="In which classes differ in width.")
    means_share: Number = Field(default=0.15, gt=0, lt=1, description="Share of μ² for class counts and means.")
    shared_share: Number = Field(default=0.30, gt=0, lt=1, description="Share of μ² for what all classes share.")
    spread: Number = Field(default=1.15, gt=0, le=10, description="How much wider samples lie than records.")
    accepted: Number = Field(
        default=0.25, ge=0.1, le=1, description="Share of samples that are handed out: the sharpest."
    )

    def plan(self, schema: Schema, units: int) -> Plan:
        """The three releases, calibrated so that together they cost at most `units`.

        Raises:
            InfeasiblePlan: The noise would have to be larger than the sampler can draw.
            InvalidSpec: The shares leave nothing for the covariances.
        """
        rest = 1 - self.means_share - self.shared_share
        if rest <= 0:
            raise InvalidSpec("means_share and shared_share must leave something for the classes.")
        dimensions = LevelSets(schema, self.content).dimensions
        rank = min(self.subspace_dimensions, dimensions)
        common = {"records_per_unit": schema.records_per_unit, "noise_stddev": MAXIMUM_NOISE_STDDEV}
        means = VectorSum(num_groups=schema.num_classes, dimensions=dimensions, count_weight=COUNT_WEIGHT, **common)
        shared = OuterProductSum(num_groups=1, dimensions=dimensions, **common)
        classes = OuterProductSum(num_groups=schema.num_classes, dimensions=rank, **common)
        return Plan(
            releases=(
                calibrated(means, self.means_share * units),
                calibrated(shared, self.shared_share * units),
                calibrated(classes, rest * units),
            )
        )

    def create_run(
        self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> ShapesRun:
        """A run of the three releases; beside noise, only the samples that set the tolerance are random: public."""
        return ShapesRun(self, plan, dataset, randomness)


class ShapesRun(StatelessRun):
    """The three releases of a run."""

    def __init__(self, parameters: Shapes, plan: Plan, dataset: Dataset, randomness: TrainingRandomness) -> None:
        self._parameters = parameters
        self._mechanisms = list_sums(plan)
        self._schema = dataset.schema
        self._data = dataset.train
        self._codec = LevelSets(dataset.schema, parameters.content)
        self._vector_norm = _VECTOR_NORMS[parameters.content]
        self._residual_norm = _RESIDUAL_NORMS[parameters.content]
        self._seed = randomness.seed("shapes.tolerances")
        self._encoded: Floats | None = None
        self._fit = HierarchicalFit()

    @property
    def steps(self) -> int:
        """Three."""
        return len(self._mechanisms)

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Make release `step` and keep what it says."""
        mechanism = self._mechanisms[step]
        contributions = (self._means, self._shared, self._classes)[step]
        released = mechanism.release(contributions, step=step, account=account, noise=noise)
        stddev, scale = mechanism.noise_stddev / mechanism.grid**2, self._residual_norm**2
        if step == 0:
            sum_stddev = mechanism.noise_stddev / mechanism.grid * self._vector_norm
            self._fit.estimate_means(released[:, 0], released[:, 1:] * self._vector_norm, sum_stddev)
        elif step == 1:
            self._fit.estimate_shared(released[0] * scale, stddev * scale, self._mechanisms[2].dimensions)
        else:
            self._fit.estimate_classes(released * scale, stddev * scale)

    def result(self) -> Generator:
        """The class-conditional Gaussian over signed distances."""
        from datalens_service.models.generators import shapes
        from datalens_service.models.generators.generator import Generator

        settings: dict[str, Any] = {"content": self._parameters.content, "spread": self._parameters.spread}
        parts = {
            "basis": self._fit.basis,
            "means": self._fit.means + self._codec.origin(),
            "factors": self._fit.factors,
        }
        tensors = {name: np.ascontiguousarray(part, dtype=np.float32) for name, part in parts.items()}
        limits = shapes.tolerances(tensors, settings, self._schema, self._parameters.accepted, self._seed)
        return Generator("shapes", self._schema, settings, tensors | {"tolerances": limits})

    def _vectors(self) -> Floats:
        """Private (n, dimensions): records as vectors around the origin, in units of their largest length."""
        if self._encoded is None:
            self._encoded = on_grid((self._codec.encode(self._data.images) - self._codec.origin()) / self._vector_norm)
        return self._encoded

    def _means(self) -> GroupedVectors:
        return GroupedVectors(self._vectors(), self._data.labels, self._data.unit_ids)

    def _residuals(self) -> Floats:
        """Private (n, dimensions): distances from the released class means, in units of their largest length."""
        away = self._vectors() * self._vector_norm - self._fit.means[self._data.labels]
        return on_grid(away / self._residual_norm)

    def _shared(self) -> GroupedVectors:
        return GroupedVectors(self._residuals(), np.zeros(len(self._data), dtype=np.int64), self._data.unit_ids)

    def _classes(self) -> GroupedVectors:
        values = exact_products(self._residuals(), self._fit.basis)
        return GroupedVectors(values, self._data.labels, self._data.unit_ids)
