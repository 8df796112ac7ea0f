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

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.mechanisms import Account, CrossProductSum
from datalens_service.mechanisms.cross_product import OuterProductFactors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import ExecutionOptions, Plan, WalledMethod, named
from datalens_service.methods.sums.mixture import Mixture, MixtureRun
from datalens_service.methods.sums.moments import Moments, MomentsRun
from datalens_service.methods.sums.record_sums import StatelessRun, calibrated
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from datalens_service.strict import Flag, Integer, Number

if TYPE_CHECKING:
    from datalens_service.models.classifier import LastLayerClassifier


Floats = NDArray[np.float32]


_FEATURE_MAPS, _FEATURE_SIDE = 64, 5
_FEATURES = _FEATURE_MAPS * _FEATURE_SIDE**2
# Features are about 1 long, and clipped to 1 when they are summed. Scores are of features clipped to this.
_LONGEST_FEATURES = 8.0

# The last layer's initial weights: plain gradient descent on released samples.
_LEARNING_LENGTH = 29
"""Times a record's gradient, to learn from a sample once."""
_HEAD_SAMPLES, _HEAD_STEPS, _HEAD_LEARNING_RATE, _HEAD_MOMENTUM = 12_000, 60, np.float32(16), np.float32(0.9)


class Guided(WalledMethod):
    """Parameters of the guided method; constants were chosen on MNIST (docs/methods.md)."""

    name: Literal["guided"] = "guided"
    warm_start: Annotated[Moments | Mixture, Field(discriminator="name"), BeforeValidator(named)] = Moments()
    gradient_share: Number = Field(default=0.4, gt=0, lt=1, description="Share of μ² for the gradients.")
    steps: Integer = Field(default=60, ge=1, le=1000, description="Gradients, each over all records.")
    learning_rate: Number = Field(default=40.0, gt=0, le=1000)
    momentum: Number = Field(default=0.9, ge=0, lt=1)
    averaging: Number = Field(default=0.9, ge=0, lt=1, description="Decay of the average of weights.")
    error_norm: Number = Field(default=0.7, gt=0, le=2, description="Largest length of a record's error.")
    hidden_units: Integer = Field(default=64, ge=2, le=1024, description="Of the classifier's dense layer.")
    samples: Integer = Field(default=60_000, ge=100, le=1_000_000, description="Released samples it first learns from.")
    epochs: Integer = Field(default=4, ge=1, le=100, description="How often it sees each of them.")
    spread: Number = Field(default=2.0, gt=0, le=10, description="How much wider samples lie than records, at most.")
    least_spread: Number | None = Field(
        default=None,
        gt=0,
        le=10,
        description="How much wider they lie at least; none or more than `spread`: all as wide as `spread`.",
    )
    poses: Flag = Field(default=True, description="Turn, shear and shift samples a little.")
    surfaces: Flag = Field(default=True, description="Change contrast and texture of samples a little.")

    def plan(self, schema: Schema, units: int) -> Plan:
        """Releases of the start, then the gradients."""
        start = self.warm_start.plan(schema, math.floor((1 - self.gradient_share) * units))
        mechanism = CrossProductSum(
            left_dimensions=_FEATURES + self.hidden_units + 1,
            right_dimensions=schema.num_classes,
            records_per_unit=schema.records_per_unit,
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        gradient = calibrated(mechanism, (units - start.cost()) / self.steps)
        return Plan(releases=(*start.releases, gradient.model_copy(update={"count": self.steps})))

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        """Those of the warm start."""
        return self.warm_start.warnings(plan, schema)

    def start_run(
        self, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> GuidedRun:
        """A run of the releases of `plan`."""
        return GuidedRun(self, plan, records, randomness, options)

    def settings(self) -> dict[str, Any]:
        """What the generator needs to draw samples."""
        start = "mixture" if isinstance(self.warm_start, Mixture) else "gaussian"
        least = self.spread if self.least_spread is None else min(self.least_spread, self.spread)
        widths = {"spread": self.spread, "least_spread": least}
        return {"start": start, **widths, "poses": self.poses, "surfaces": self.surfaces}


class GuidedRun(StatelessRun):
    """The releases of a run: those of the warm start, then the gradients."""

    def __init__(
        self,
        parameters: Guided,
        plan: Plan,
        records: PrivateRecords,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._parameters = parameters
        self._records = records
        self._randomness = randomness
        self._device, self._tell = options.device, options.tell
        start = Plan(releases=plan.releases[:-1])
        self._warm: MomentsRun | MixtureRun = parameters.warm_start.start_run(start, records, randomness, options)
        gradients = plan.releases[-1]
        if not isinstance(gradients.mechanism, CrossProductSum):
            raise TypeError("the last release of a guided plan is a gradient")
        self._gradients, self._gradient_steps = gradients.mechanism, gradients.count
        self._descent: NoisyGradientDescent | None = None

    @property
    def steps(self) -> int:
        """Those of the warm start, then one for each gradient."""
        return self._warm.steps + self._gradient_steps

    def lengths(self) -> dict[int, int]:
        """The classifier learns from samples before the first gradient."""
        schema, parameters = self._records.schema, self._parameters
        learned = parameters.samples * parameters.epochs / (schema.num_units * schema.records_per_unit)
        return {self._warm.steps: 1 + round(_LEARNING_LENGTH * learned)}

    def may_stop_before(self, step: int) -> bool:
        """Gradients refine a classifier that exists already."""
        return step >= self._warm.steps

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """A release of the warm start, or one gradient."""
        if step < self._warm.steps:
            self._warm.step(step, account, noise)
            return
        descent = self._gradient_descent()
        descent.step(self._gradients, step=step, account=account, noise=noise)

    def result(self) -> Generator:
        """The released model with the classifier after the gradients so far."""
        from datalens_service.models.generators.gaussian.guided import pack

        start = self._warm.result().tensors
        tensors = pack(start, self._gradient_descent().tensors())
        return Generator("guided", self._records.schema, self._parameters.settings(), tensors)

    def initial_generator(self) -> Generator:
        """The released model by itself."""
        return self._warm.result()

    def _gradient_descent(self) -> NoisyGradientDescent:
        """The descent from the classifier of released samples, once the warm start is complete."""
        if self._descent is None:
            self._descent = NoisyGradientDescent(self._parameters, self._records, *self._pretrained_classifier())
        return self._descent

    def _pretrained_classifier(self) -> tuple[LastLayerClassifier, Floats]:
        """A classifier trained on released samples only, and the initial weights of its last layer."""
        from datalens_service.models.classifier import LastLayerClassifier
        from datalens_service.models.generators.gaussian.guided import propose

        parameters, schema, randomness = self._parameters, self._records.schema, self._randomness
        labels = np.arange(parameters.samples, dtype=np.int64) % schema.num_classes
        start, rng = self._warm.result().tensors, randomness.numpy("samples")
        samples = propose(start, parameters.settings(), schema, labels, rng)
        shape = (_FEATURE_MAPS, _FEATURE_SIDE)
        classifier = LastLayerClassifier(schema, shape, parameters.hidden_units, randomness.seed("labeller")).to(
            self._device
        )
        classifier.fit(samples, labels, parameters.epochs, randomness.seed("order"), self._tell)
        features = classifier.features(samples[:_HEAD_SAMPLES])
        return classifier, fit_linear_classifier(features, labels[:_HEAD_SAMPLES], schema.num_classes)


class Layer(NamedTuple):
    """A released linear layer (features, classes), and the public length of a record's error."""

    weights: Floats
    error_norm: float


def layer_gradients(rows: Rows, layer: Layer) -> OuterProductFactors:
    """Contribution: features on the grid, with a 1 for the bias, and the error of their scores."""
    scores = exact_products(rows.values, layer.weights).astype(np.float32)
    errors = softmax_errors(scores, rows.labels) / np.float32(layer.error_norm)
    return OuterProductFactors(rows.values, errors, rows.units)


def classifier_features(rows: Rows, classifier: LastLayerClassifier) -> Floats:
    """Features that a classifier of released samples sees in images, with a 1 for the bias."""
    return on_grid(classifier.features_of_records(_pixels(rows.values)), _LONGEST_FEATURES)


class NoisyGradientDescent:
    """Gradient descent on the last layer of a classifier: weights follow noisy gradients only."""

    def __init__(
        self, parameters: Guided, records: PrivateRecords, classifier: LastLayerClassifier, weights: Floats
    ) -> None:
        self._parameters = parameters
        self._classifier = classifier
        self._features = records.map(classifier_features, classifier)
        self._divisor = records.schema.num_units * records.schema.records_per_unit
        self._weights, self._average = weights, weights
        self._velocity = np.zeros_like(weights)

    def step(self, mechanism: CrossProductSum, *, step: int, account: Account, noise: NoiseSource) -> None:
        """One noisy gradient, and a step along it."""
        layer = Layer(self._weights, self._parameters.error_norm)
        released = self._features.release(mechanism, layer_gradients, layer, step=step, account=account, noise=noise)
        self.apply_gradient(released)

    def apply_gradient(self, released: NDArray[np.float64]) -> None:
        """One step along a noisy sum of gradients."""
        parameters = self._parameters
        gradient = (released * (parameters.error_norm / self._divisor)).astype(np.float32)
        self._velocity = parameters.momentum * self._velocity + gradient
        self._weights = self._weights - parameters.learning_rate * self._velocity
        self._average = parameters.averaging * self._average + (1 - parameters.averaging) * self._weights

    def tensors(self) -> dict[str, Floats]:
        """Those of the classifier, with the average of the last layer's weights so far."""
        return self._classifier.tensors() | {"head": self._average.astype(np.float32)}


def softmax_errors(scores: Floats, labels: Labels) -> Floats:
    """(n, classes) softmax of the scores, minus 1 at the true class: the gradient of the loss by the scores."""
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    return np.asarray(chances, dtype=np.float32)


def fit_linear_classifier(features: Floats, labels: Labels, num_classes: int) -> Floats:
    """(features, classes) of a linear classifier of released samples, by plain gradient descent."""
    weights = np.zeros((features.shape[1], num_classes), dtype=np.float32)
    velocity = np.zeros_like(weights)
    for _ in range(_HEAD_STEPS):
        gradient = features.T @ softmax_errors(features @ weights, labels) / np.float32(len(labels))
        velocity = np.asarray(_HEAD_MOMENTUM * velocity + gradient, dtype=np.float32)
        weights = weights - _HEAD_LEARNING_RATE * velocity
    return weights


def _pixels(images: Images) -> Floats:
    """Bytes (n, height, width, channels) as numbers (n, d) in [0, 1], channels first."""
    return np.asarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1), dtype=np.float32) / np.float32(255)
