"""Rejection: wide samples of shapes, accepted as often as records look like them, with a private classifier's labels.

    shapes → samples → a basis of features and first weights (post-processing);
    one noisy mean of features per class, and shares of pieces and holes, of records decoded as samples are;
    then, `steps` times, one noisy gradient of a linear layer on scattering features over all records;
    samples are rejected until their features have those means, and labelled by the classifier (post-processing).

Rejection by a density ratio is from Azadi et al. 2019, "Discriminator Rejection Sampling"; here the ratio is private,
an exponential tilt (models/generators/level_sets/tilting.py). Samples that the classifier gives another class than they
were drawn for are kept under that class, since they show where classes meet. A classifier learns from the same samples
that people look at.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from datalens_service.base.arrays import Floats32
from datalens_service.base.fields import Number
from datalens_service.data.dataset import Labels, Schema
from datalens_service.mechanisms import VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import Plan, named
from datalens_service.methods.facts import SAMPLES_AND_NETWORKS, Facts, Levels
from datalens_service.methods.last_layer.scattering import ENCODING_LENGTH, LinearLayer, ScatteringGradients
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.sums.record_sums import COUNT_WEIGHT, calibrate
from datalens_service.methods.sums.shapes import Shapes, fit_shapes, redraw
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.level_sets.level_sets import Content
from datalens_service.models.generators.level_sets.rejection import TOPOLOGY_NUMBERS
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, TrainingRandomness

if TYPE_CHECKING:
    from datalens_service.models.classifiers.classifier import Classifier
    from datalens_service.models.classifiers.encoded_features import FeatureBasis


_LEAST_PROPOSALS: Final = 20
"""Samples of a class that its tilt is fitted to, at least."""


class Rejection(ScatteringGradients):
    """Parameters of the rejection method (docs/methods.md); constants were chosen on MNIST (docs/findings.md)."""

    instead: ClassVar[str] = "the method guided"

    facts = Facts(
        title="Rejection",
        summary="what `shapes` releases, then noisy gradients of a classifier that rejects and labels samples",
        result="generator", public_images="start", levels=Levels(30, 300), memory=SAMPLES_AND_NETWORKS,
        measured_as="rejection", image_seconds=2.5e-3,
    )  # fmt: skip

    name: Literal["rejection"] = "rejection"
    warm_start: Annotated[Shapes, BeforeValidator(named)] = Shapes(spread=1.6, accepted=1.0)
    gradient_share: Number = Field(default=0.4, gt=0, lt=1, description="Share of μ² for the gradients.")
    features_share: Number = Field(default=0.05, gt=0, lt=1, description="Share of μ² for the records' mean features.")
    accepted: Number = Field(
        default=0.4, ge=0.05, le=1, description="Share of the samples of each predicted class that is handed out."
    )

    def with_content(self, content: Content) -> Self:
        """Return the method for images of known content, which spends nothing on a count."""
        return self.model_copy(update={"warm_start": self.warm_start.model_copy(update={"content": content})})

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        """Plan the releases of the start, the mean features, then the gradients."""
        means = VectorSum(
            num_groups=schema.num_classes,
            dimensions=self.feature_dimensions(schema) + TOPOLOGY_NUMBERS,
            records_per_unit=schema.records_per_unit,
            noise_stddev=MAXIMUM_NOISE_STDDEV,
            count_weight=COUNT_WEIGHT,
        )
        release = calibrate(means, math.floor(self.features_share * ledger_units))
        others = super().plan(schema, ledger_units - release.cost())
        return Plan(releases=(*others.releases[:-1], release, others.releases[-1]))

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        gradients = plan.releases[-1].count
        longer = 1 + ENCODING_LENGTH * gradients
        return {plan.steps - gradients - 1: longer, plan.steps - gradients: longer}

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        *first, features, gradients = plan.releases
        if not isinstance(features.mechanism, VectorSum):
            raise TypeError("a rejection plan releases mean features before its gradients")
        shapes = yield from fit_shapes(self.warm_start, Plan(releases=tuple(first)), records, inputs.randomness)
        layer = LinearLayer(self, gradients, shapes.generator, records.schema, inputs)
        redrawn = shapes.encoded.map(redraw, shapes.codec)
        described = Described(layer.basis, shapes.codec.ink_level)
        released = yield Ask(redrawn, features.mechanism, described_images, described)
        tilt = _MeanFeatures(self, features.mechanism, released, shapes.generator, inputs.randomness)

        def outcome() -> Outcome:
            from datalens_service.models.generators.level_sets.rejection import pack

            start, classifier = shapes.generator, layer.classifier()
            settings: dict[str, Any] = {"start": start.settings, "classifier": classifier.settings}
            tensors = pack(start.tensors, classifier.tensors, *tilt.fit(classifier))
            model = Generator("rejection", start.schema, settings, tensors)
            return Outcome(model.with_class_shares(start.class_shares), start)

        yield from layer.descend(records, outcome)
        return outcome()


class Described(NamedTuple):
    """The released basis of features that contributions use, and the brightness of ink."""

    basis: FeatureBasis
    ink_level: float


def described_images(rows: Rows, seen: Described) -> GroupedVectors:
    """Contribution: features for the tilt, of records decoded as samples are, so that they differ in shape only."""
    from datalens_service.models.generators.level_sets.rejection import describe

    # Features of gradients have a constant at the end, of half the squared length.
    features = seen.basis.features(rows.values)[:, :-1] * np.float32(2**0.5)
    described = describe(features, rows.values, seen.ink_level)
    return GroupedVectors(described.astype(np.float64), rows.labels, rows.units)


class _MeanFeatures:
    """Released mean features of records, to which a tilt is fitted once."""

    def __init__(
        self,
        parameters: Rejection,
        mechanism: VectorSum,
        released: NDArray[np.float64],
        start: Generator,
        randomness: TrainingRandomness,
    ) -> None:
        self._parameters, self._start, self._randomness = parameters, start, randomness
        counts = np.maximum(released[:, :1], 1.0)
        self._means = released[:, 1:] / counts
        self._noise = float(np.median(mechanism.noise_stddev / mechanism.grid / counts))
        self._tilt: tuple[Floats32, Floats32] | None = None

    def fit(self, classifier: Classifier) -> tuple[Floats32, Floats32]:
        """Fit weights (classes, features) and levels (classes,) to released samples and means."""
        from datalens_service.models.generators.level_sets import rejection
        from datalens_service.models.generators.level_sets.tilting import find_level, fit_tilt, penalty

        if self._tilt is None:
            start, schema = self._start, self._start.schema
            count = max(self._parameters.samples, _LEAST_PROPOSALS * schema.num_classes)
            labels = np.arange(count, dtype=np.int64) % schema.num_classes
            rng = self._randomness.numpy("rejection.proposals")
            drawn = rejection.propose(start.tensors, start.settings, classifier, labels, rng)
            strength = penalty(self._noise)
            rows = [_list_rows(label, drawn.predicted, labels) for label in range(schema.num_classes)]
            weights = np.stack(
                [
                    fit_tilt(drawn.features[mine].astype(np.float64), mean, strength)
                    for mine, mean in zip(rows, self._means, strict=True)
                ]
            ).astype(np.float32)
            scores = drawn.scores(weights)
            levels = [find_level(scores[mine], self._parameters.accepted) for mine in rows]
            self._tilt = weights, np.array(levels, dtype=np.float32)
        return self._tilt


def _list_rows(label: int, predicted: Labels, labels: Labels) -> NDArray[np.int64]:
    """List the samples that the classifier gives a class, or those drawn for it if they are too few for a tilt."""
    seen = np.flatnonzero(predicted == label)
    return seen if len(seen) >= _LEAST_PROPOSALS else np.flatnonzero(labels == label)
