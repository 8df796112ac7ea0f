"""Guided: moments or a mixture for the images, a privately trained classifier for their labels.

    released model → augmented samples → a classifier learns from them (post-processing);
    then, `steps` times, one noisy gradient of its last layer over all records;
    samples are relabelled by this classifier.

Labels decide what a classifier learns from synthetic images, and a gradient over all records says far more about
them than means and covariances do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from datalens_service.base.arrays import Floats32
from datalens_service.base.fields import Flag, Integer, Number
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.mechanisms import CrossProductSum
from datalens_service.mechanisms.cross_product import OuterProductFactors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import Method, Plan, named
from datalens_service.methods.facts import SAMPLES_AND_NETWORKS, Facts, Levels
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.sums.mixture import Mixture
from datalens_service.methods.sums.moments import Moments
from datalens_service.methods.sums.record_sums import calibrate
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

if TYPE_CHECKING:
    from datalens_service.models.classifiers.last_layer import LastLayerClassifier


_FEATURE_MAPS, _FEATURE_SIDE = 64, 5
_FEATURES = _FEATURE_MAPS * _FEATURE_SIDE**2
# Features are about 1 long, and clipped to 1 when they are summed. Scores are of features clipped to this.
_LONGEST_FEATURES = 8.0

# The last layer's initial weights: plain gradient descent on released samples.
_LEARNING_LENGTH = 29
"""Learning from a sample once takes this many times as long as a record's gradient."""
_HEAD_SAMPLES, _HEAD_STEPS, _HEAD_LEARNING_RATE, _HEAD_MOMENTUM = 12_000, 60, np.float32(16), np.float32(0.9)


class Guided(Method):
    """Parameters of the guided method; constants were chosen on MNIST (docs/methods.md)."""

    facts = Facts(
        title="Guided",
        summary="what `moments` or `mixture` releases, then noisy gradients of a classifier that relabels samples",
        result="generator", public_images=None, levels=Levels(100, 300), memory=SAMPLES_AND_NETWORKS,
        measured_as="guided", image_seconds=3e-3,
    )  # fmt: skip

    name: Literal["guided"] = "guided"
    warm_start: Annotated[Moments | Mixture, Field(discriminator="name"), BeforeValidator(named)] = Moments()
    gradient_share: Number = Field(default=0.4, gt=0, lt=1, description="Share of μ² for the gradients.")
    steps: Integer = Field(default=60, ge=1, le=1000, description="Gradients, each over all records.")
    learning_rate: Number = Field(default=40.0, gt=0, le=1000)
    momentum: Number = Field(default=0.9, ge=0, lt=1)
    averaging: Number = Field(default=0.9, ge=0, lt=1, description="Decay of the average of weights.")
    error_norm: Number = Field(default=0.7, gt=0, le=2, description="Largest length of a record's error.")
    hidden_units: Integer = Field(default=64, ge=2, le=1024, description="Width of the classifier's dense layer.")
    samples: Integer = Field(default=60_000, ge=100, le=1_000_000, description="Released samples it first learns from.")
    epochs: Integer = Field(default=4, ge=1, le=100, description="Passes over them.")
    spread: Number = Field(
        default=2.0, gt=0, le=10, description="Largest factor by which samples spread wider than records."
    )
    least_spread: Number | None = Field(
        default=None,
        gt=0,
        le=10,
        description="How much wider they lie at least; none or more than `spread`: all as wide as `spread`.",
    )
    poses: Flag = Field(default=True, description="Turn, shear and shift samples a little.")
    surfaces: Flag = Field(default=True, description="Change contrast and texture of samples a little.")

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        start = self.warm_start.plan(schema, math.floor((1 - self.gradient_share) * ledger_units))
        mechanism = CrossProductSum(
            left_dimensions=_FEATURES + self.hidden_units + 1,
            right_dimensions=schema.num_classes,
            records_per_unit=schema.records_per_unit,
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        gradient = calibrate(mechanism, (ledger_units - start.cost()) / self.steps)
        return Plan(releases=(*start.releases, gradient.model_copy(update={"count": self.steps})))

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        return self.warm_start.warnings(plan, schema)

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        learned = self.samples * self.epochs / (schema.num_units * schema.records_per_unit)
        return {plan.steps - plan.releases[-1].count: 1 + round(_LEARNING_LENGTH * learned)}

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.models.generators.gaussian.guided import pack

        start = (yield from self.warm_start.run(Plan(releases=plan.releases[:-1]), records, inputs)).generator
        classifier, weights = self._pretrain(start, inputs)
        descent = NoisyGradientDescent(self, records.schema, weights)
        features = records.map(classifier_features, classifier)

        def outcome() -> Outcome:
            head = {"head": descent.average.astype(np.float32)}
            tensors = pack(start.tensors, classifier.tensors() | head)
            model = Generator("guided", records.schema, self.settings(), tensors)
            return Outcome(model.with_class_shares(start.class_shares), start)

        gradients = plan.releases[-1]
        for _ in range(gradients.count):
            layer = Layer(descent.weights, self.error_norm)
            descent.follow((yield Ask(features, gradients.mechanism, layer_gradients, layer, outcome)))
        return outcome()

    def _pretrain(self, start: Generator, inputs: RunInputs) -> tuple[LastLayerClassifier, Floats32]:
        """Train a classifier on released samples alone, and return it with the initial weights of its last layer."""
        from datalens_service.models.classifiers.last_layer import LastLayerClassifier
        from datalens_service.models.generators.gaussian.guided import propose

        schema, randomness, options = start.schema, inputs.randomness, inputs.options
        labels = np.arange(self.samples, dtype=np.int64) % schema.num_classes
        samples = propose(start.tensors, self.settings(), schema, labels, randomness.numpy("samples"))
        shape, seed = (_FEATURE_MAPS, _FEATURE_SIDE), randomness.seed("labeller")
        classifier = LastLayerClassifier(schema, shape, self.hidden_units, seed).to(options.device)
        classifier.fit(samples, labels, self.epochs, randomness.seed("order"), options.tell)
        features = classifier.features(samples[:_HEAD_SAMPLES])
        return classifier, fit_linear_classifier(features, labels[:_HEAD_SAMPLES], schema.num_classes)

    def settings(self) -> dict[str, Any]:
        """Return the settings by which the generator draws samples."""
        start = "mixture" if isinstance(self.warm_start, Mixture) else "gaussian"
        least = self.spread if self.least_spread is None else min(self.least_spread, self.spread)
        widths = {"spread": self.spread, "least_spread": least}
        return {"start": start, **widths, "poses": self.poses, "surfaces": self.surfaces}


class Layer(NamedTuple):
    """A released linear layer (features, classes), and the public length of a record's error."""

    weights: Floats32
    error_norm: float


def layer_gradients(rows: Rows, layer: Layer) -> OuterProductFactors:
    """Contribution: features on the grid, with a 1 for the bias, and the error of their scores."""
    scores = exact_products(rows.values, layer.weights).astype(np.float32)
    errors = softmax_errors(scores, rows.labels) / np.float32(layer.error_norm)
    return OuterProductFactors(rows.values, errors, rows.units)


def classifier_features(rows: Rows, classifier: LastLayerClassifier) -> Floats32:
    """Compute a classifier's features of images, with a 1 for the bias."""
    return on_grid(classifier.features_of_records(_pixels(rows.values)), _LONGEST_FEATURES)


class NoisyGradientDescent:
    """Gradient descent on the last layer of a classifier: weights follow noisy gradients only."""

    def __init__(self, parameters: Guided, schema: Schema, weights: Floats32) -> None:
        self._parameters = parameters
        self._divisor = schema.num_units * schema.records_per_unit
        self.weights, self.average = weights, weights
        self._velocity = np.zeros_like(weights)

    def follow(self, released: NDArray[np.float64]) -> None:
        """Take one step along a noisy sum of gradients."""
        parameters = self._parameters
        gradient = (released * (parameters.error_norm / self._divisor)).astype(np.float32)
        self._velocity = parameters.momentum * self._velocity + gradient
        self.weights = self.weights - parameters.learning_rate * self._velocity
        self.average = parameters.averaging * self.average + (1 - parameters.averaging) * self.weights


def softmax_errors(scores: Floats32, labels: Labels) -> Floats32:
    """Subtract 1 at the true class from the softmax (n, classes): the gradient of the loss by the scores."""
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    return np.asarray(chances, dtype=np.float32)


def fit_linear_classifier(features: Floats32, labels: Labels, num_classes: int) -> Floats32:
    """Fit a linear classifier (features, classes) of released samples, by plain gradient descent."""
    weights = np.zeros((features.shape[1], num_classes), dtype=np.float32)
    velocity = np.zeros_like(weights)
    for _ in range(_HEAD_STEPS):
        gradient = features.T @ softmax_errors(features @ weights, labels) / np.float32(len(labels))
        velocity = np.asarray(_HEAD_MOMENTUM * velocity + gradient, dtype=np.float32)
        weights = weights - _HEAD_LEARNING_RATE * velocity
    return weights


def _pixels(images: Images) -> Floats32:
    """Turn bytes (n, height, width, channels) into numbers (n, d) in [0, 1], channels first."""
    return np.asarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1), dtype=np.float32) / np.float32(255)
