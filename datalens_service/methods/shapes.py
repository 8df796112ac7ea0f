"""Shapes: moments of signed distances instead of pixels, so that samples have sharp outlines.

Three releases: counts and sums of vectors per class → means; Σ r·rᵀ pooled, of the distances from the class means →
what all classes share; Σ r·rᵀ per class in the subspace of that → how each class departs from it. The vector of a
record is a function of its image alone (models/generators/level_sets.py). Before them, unless the client says what
images show, one noisy count of drawings decides. Whatever follows a release is post-processing.

With several components per class these place the first centres. Then, `iterations` times, counts and sums of the
vectors next to each centre, and Σ r·rᵀ of distances from the centres. A record belongs to the component of its own
class whose released centre is next to it, as in `mixture`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.data.dataset import Dataset, Images, Schema
from datalens_service.errors import InvalidSpec
from datalens_service.mechanisms import Account, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.methods.base import ExecutionOptions, Method, Plan
from datalens_service.methods.record_sums import (
    StatelessRun,
    calibrated,
    list_sums,
    planned_products,
    planned_vectors,
)
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.content import are_drawings
from datalens_service.models.generators.hierarchical_gaussian import HierarchicalFit
from datalens_service.models.generators.hierarchical_mixture import HierarchicalMixture
from datalens_service.models.generators.level_sets import Content, LevelSets
from datalens_service.models.generators.mixture import nearest
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from datalens_service.strict import Integer, Number

if TYPE_CHECKING:
    from datalens_service.models.generators.generator import Generator

Floats = NDArray[np.float64]

# Largest distance of a vector from the codec's origin, and from the mean of its class: constants of MNIST and of
# Fashion-MNIST (docs/image-trials.md), which do not depend on the resolution.
_VECTOR_NORMS: Final[dict[str, float]] = {"drawings": 28.0, "objects": 104.0}
_RESIDUAL_NORMS: Final[dict[str, float]] = {"drawings": 18.0, "objects": 61.0}
# The same where several centres are placed, and the largest distance from them.
_CENTRE_NORMS: Final[dict[str, float]] = {"drawings": 26.0, "objects": 100.0}
_COMPONENT_NORMS: Final[dict[str, float]] = {"drawings": 20.0, "objects": 50.0}
# Bound on distances when a centre is chosen: an exact product needs one, and images end before it.
_FARTHEST: Final = 8.0
_RELEASES_OF_CLASSES: Final = 3

# Of μ², for the count of drawings. Of 60,000 records at ε = 1 its noise is that of 40.
_COUNT_SHARE: Final = 0.01


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
    components: Integer = Field(default=1, ge=1, le=64, description="K, Gaussians per class.")
    iterations: Integer = Field(default=4, ge=1, le=20, description="How often the centres move, if K > 1.")
    start_share: Number = Field(
        default=0.20, gt=0, lt=1, description="Part of means and covariances that places the centres, if K > 1."
    )
    spread: Number = Field(default=1.15, gt=0, le=10, description="How much wider samples lie than records.")
    accepted: Number = Field(
        default=0.25, ge=0.1, le=1, description="Share of samples that are handed out: the sharpest."
    )

    def plan(self, schema: Schema, units: int) -> Plan:
        """All releases, calibrated so that together they cost at most `units`; the count, if any, comes first.

        Raises:
            InfeasiblePlan: The noise would have to be larger than the sampler can draw.
            InvalidSpec: The shares leave nothing for the covariances.
        """
        rest = 1 - self.means_share - self.shared_share
        if rest <= 0:
            raise InvalidSpec("means_share and shared_share must leave something for the classes.")
        counts = []
        if self.content == "measured":
            count = VectorSum(
                num_groups=1,
                dimensions=1,
                records_per_unit=schema.records_per_unit,
                noise_stddev=MAXIMUM_NOISE_STDDEV,
            )
            counts = [calibrated(count, _COUNT_SHARE * units)]
            units -= counts[0].units(NeighboringRelation.ZERO_OUT)
        dimensions, classes = self.dimensions(schema), schema.num_classes
        rank = min(self.subspace_dimensions, dimensions)
        start = self.start_share if self.components > 1 else 1.0
        means, covariances = self.means_share * units, rest * units
        releases = [
            *counts,
            planned_vectors(schema, classes, dimensions, means * start),
            planned_products(schema, 1, dimensions, self.shared_share * units),
            planned_products(schema, classes, rank, covariances * start),
        ]
        if self.components > 1:
            groups = classes * self.components
            releases += [
                planned_vectors(schema, groups, rank, means * (1 - start), self.iterations),
                planned_products(schema, groups, rank, covariances * (1 - start)),
            ]
        return Plan(releases=tuple(releases))

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
        self._rng = randomness.numpy("shapes.centres")
        self._encoded: Floats | None = None
        self._fit = HierarchicalFit()
        self._mixture: HierarchicalMixture | None = None
        self._first_sum = 0
        if parameters.content == "measured":
            self._first_sum = 1
        else:
            self._choose_content(parameters.content)

    @property
    def steps(self) -> int:
        """Three, and one for the count; with components one for each time the centres move, and a last one."""
        return len(self._mechanisms)

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Make release `step` and keep what it says."""
        number, mechanism = step - self._first_sum, self._mechanisms[step]
        if number >= _RELEASES_OF_CLASSES:
            self._step_components(step, account, noise)
            return
        contributions = self._drawings if number < 0 else (self._means, self._shared, self._classes)[number]
        released = mechanism.release(contributions, step=step, account=account, noise=noise)
        self._learn(number, released)

    def _step_components(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Move the centres, or learn how far records vary around them."""
        mechanism, components = self._mechanisms[step], self._components
        rank, content = self._fit.basis.shape[1], self._codec.content
        if isinstance(mechanism, VectorSum):
            released = mechanism.release(self._next_to_centres, step=step, account=account, noise=noise)
            scale, stddev = _CENTRE_NORMS[content], mechanism.noise_stddev
            table = np.concatenate([released[:, :1], released[:, 1 : rank + 1] * scale], axis=1)
            components.centres.move(table, stddev / mechanism.count_weight, stddev / mechanism.grid * scale)
        else:
            released = mechanism.release(self._around_centres, step=step, account=account, noise=noise)
            scale = _COMPONENT_NORMS[content] ** 2
            stddev_of_entries = mechanism.noise_stddev / mechanism.grid**2 * scale
            components.estimate_covariances(released[:, :rank, :rank] * scale, stddev_of_entries)

    @property
    def _components(self) -> HierarchicalMixture:
        """The fit of the components, once the releases before it are there."""
        if self._mixture is None:
            self._mixture = HierarchicalMixture(self._fit, self._parameters.components, self._rng)
        return self._mixture

    def _learn(self, number: int, released: Floats) -> None:
        """From the count (-1), the means (0), what classes share (1) or what each adds (2)."""
        if number < 0:
            self._choose_content("drawings" if released[0, 1] > 0 else "objects")
            return
        mechanism, used = self._mechanisms[number + self._first_sum], self._codec.dimensions
        stddev, scale = mechanism.noise_stddev / mechanism.grid**2, self._residual_norm**2
        if number == 0:
            sum_stddev = mechanism.noise_stddev / mechanism.grid * self._vector_norm
            self._fit.estimate_means(released[:, 0], released[:, 1 : used + 1] * self._vector_norm, sum_stddev)
        elif number == 1:
            rank = self._mechanisms[self._first_sum + 2].dimensions
            self._fit.estimate_shared(released[0, :used, :used] * scale, stddev * scale, rank)
        else:
            rank = self._fit.basis.shape[1]
            self._fit.estimate_classes(released[:, :rank, :rank] * scale, stddev * scale)

    def _choose_content(self, content: Content) -> None:
        self._codec = LevelSets(self._schema, content)
        self._vector_norm, self._residual_norm = _VECTOR_NORMS[content], _RESIDUAL_NORMS[content]

    def result(self) -> Generator:
        """The class-conditional Gaussians over signed distances."""
        from datalens_service.models.generators import shapes
        from datalens_service.models.generators.generator import Generator

        settings: dict[str, Any] = {"content": self._codec.content, "spread": self._parameters.spread}
        fit = self._fit
        parts = {"basis": fit.basis, "means": fit.means, "factors": fit.factors}
        if self._mixture is not None:
            parts = self._mixture.tensors()
        parts["means"] = parts["means"] + self._codec.origin()
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

    def _drawings(self) -> GroupedVectors:
        """Private: 1 of a record that is a drawing, -1 of another one; above 0, most are."""
        values = np.where(are_drawings(self._data.images), 1.0, -1.0)[:, None]
        return GroupedVectors(values, np.zeros(len(self._data), dtype=np.int64), self._data.unit_ids)

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

    def _away(self) -> Floats:
        """Private (n, dimensions): distances of records from the released class means."""
        return self._vectors() * self._vector_norm - self._fit.means[self._data.labels]

    def _residuals(self) -> Floats:
        """The same in units of their largest length."""
        return on_grid(self._away() / self._residual_norm)

    def _shared(self) -> GroupedVectors:
        groups = np.zeros(len(self._data), dtype=np.int64)
        return GroupedVectors(self._padded(self._residuals(), 1), groups, self._data.unit_ids)

    def _classes(self) -> GroupedVectors:
        values = exact_products(self._residuals(), self._fit.basis)
        return GroupedVectors(self._padded(values, 2), self._data.labels, self._data.unit_ids)

    def _coordinates(self) -> tuple[Floats, NDArray[np.int64]]:
        """Private: distances from the class means in the basis (n, q), and the component of each record (n,)."""
        scale = _CENTRE_NORMS[self._codec.content]
        coordinates = exact_products(on_grid(self._away() / scale, _FARTHEST), self._fit.basis) * scale
        return coordinates, nearest(coordinates, self._data.labels, self._components.centres.places)

    def _next_to_centres(self) -> GroupedVectors:
        coordinates, groups = self._coordinates()
        scaled = coordinates / _CENTRE_NORMS[self._codec.content]
        return GroupedVectors(self._padded(scaled, _RELEASES_OF_CLASSES), groups, self._data.unit_ids)

    def _around_centres(self) -> GroupedVectors:
        coordinates, groups = self._coordinates()
        places = self._components.centres.places
        away = (coordinates - places.reshape(-1, places.shape[-1])[groups]) / _COMPONENT_NORMS[self._codec.content]
        return GroupedVectors(self._padded(away, _RELEASES_OF_CLASSES), groups, self._data.unit_ids)

    def _padded(self, values: Floats, number: int) -> Floats:
        """As wide as the mechanism sums them."""
        missing = self._mechanisms[number + self._first_sum].dimensions - values.shape[1]
        return np.pad(values, ((0, 0), (0, missing))) if missing else values
