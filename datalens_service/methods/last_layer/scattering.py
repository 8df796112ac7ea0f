"""Scattering: a linear classifier on fixed features, by noisy gradients over all records.

    moments → samples → a basis of features and first weights (post-processing);
    then, `steps` times, one noisy gradient of the linear layer over all records.

Features are fixed wavelets, or those of another public encoder, which needs neither basis nor start: then all of the
budget is for gradients. Public images, if a job names some, are seen beside the samples.

Tramèr and Boneh 2021, "Differentially private learning needs better features (or much more data)", train linear layers
on scattering features with DP-SGD. Here released samples also show along which directions features vary: with a basis
that evens these out in part, the descent needs fewer steps, and noise falls on fewer weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Generator as Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from datalens_service.base.arrays import Floats32
from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Integer, Number
from datalens_service.base.progress import tell_part
from datalens_service.base.wording import speak
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.mechanisms import CrossProductSum, PlannedRelease
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import Method, Plan, named
from datalens_service.methods.facts import NEXT_TO_NONE, Facts
from datalens_service.methods.last_layer.dead_leaves import DeadLeaves, draw_dead_leaves
from datalens_service.methods.last_layer.guided import Layer, fit_linear_classifier, layer_gradients
from datalens_service.methods.public_start import spread_over
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.sums.moments import Moments
from datalens_service.methods.sums.pooled_moments import PooledMoments
from datalens_service.methods.sums.record_sums import calibrate
from datalens_service.methods.sums.shapes import Shapes
from datalens_service.models.classifiers.sizes import MOST_FEATURES, largest_scattering_size
from datalens_service.models.encoders import AnyEncoder, Encoder, ScatteringEncoder
from datalens_service.models.exact_products import on_grid
from datalens_service.models.generators.generator import Generator
from datalens_service.models.public_source import PublicInputs
from datalens_service.privacy.accounting import mu_of_ledger_units
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

if TYPE_CHECKING:
    from datalens_service.models.classifiers.classifier import Classifier
    from datalens_service.models.classifiers.encoded_features import FeatureBasis


# Times n·μ, for 60 steps: on a part of MNIST's training images, best at ε = 1 and at ε = 0.1.
_RATE_PER_EVIDENCE: Final = 0.019
_HIGHEST_RATE: Final = 300.0
# Rounded at once, so that features, which may take gigabytes, are in memory once.
_ROWS: Final = 2048
_BYTES_OF_A_FITTED_PIXEL: Final = 72
"""Bytes per pixel of each image that wavelets are fitted to, from `python -m benchmarks.memory`."""
ENCODING_LENGTH: Final = 5
"""Encoding all images takes this many times as long as all gradients."""
# Without samples, for ten classes and for two: on training images of CIFAR-10 and of faces that were set aside.
# A feature's noise is as long as the root of the number of classes.
_RATE_WITHOUT_SAMPLES: Final = 0.012 * math.sqrt(10)


def _is_scattering(encoder: Any) -> bool:
    """Tell whether an encoder is wavelets, named as in a request or already read."""
    stated = named(encoder)
    return isinstance(encoder, ScatteringEncoder) or (isinstance(stated, dict) and stated.get("name") == "scattering")


class ScatteringGradients(Method):
    """Parameters of noisy gradients of a linear layer on scattering features, after a method whose samples it sees.

    The defaults were chosen on a part of MNIST's training images (docs/classifiers.md).
    """

    instead: ClassVar[str]
    """The method that makes the same kind of result of larger images."""

    warm_start: Moments | PooledMoments | Shapes | DeadLeaves | None
    gradient_share: Number = Field(default=0.6, gt=0, lt=1, description="Share of μ² for the gradients.")
    steps: Integer = Field(default=60, ge=1, le=1000, description="Gradients, each over all records.")
    learning_rate: Number | None = Field(
        default=None, gt=0, le=100_000, description="Left out, it grows with n and with μ of the gradients."
    )
    momentum: Number = Field(default=0.9, ge=0, lt=1)
    averaging: Number = Field(default=0.9, ge=0, lt=1, description="Decay of the average of weights.")
    error_norm: Number = Field(default=0.2, gt=0, le=2, description="Largest length of a record's error.")
    dimensions: Integer = Field(default=600, ge=1, le=4096, description="Features that the linear layer sees, at most.")
    samples: Integer = Field(default=12_000, ge=100, le=100_000, description="Released samples that the basis fits.")
    evenness: Number = Field(
        default=0.25, ge=0, le=0.5, description="Power of a direction's variance that features are divided by."
    )

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        """Plan the releases of the start, then the gradients."""
        encoder = self.feature_encoder()
        encoder.check(schema)
        start = Plan(releases=())
        if self.warm_start is not None:
            if encoder.dimensions(schema) > MOST_FEATURES:
                raise InvalidSpec(
                    f"The images are too large for scattering features: choose {self.instead}, or prepare "
                    f"them at {largest_scattering_size(schema)} (⟦prepare_size⟧)."
                )
            start = self.warm_start.plan(schema, math.floor((1 - self.gradient_share) * ledger_units))
        mechanism = CrossProductSum(
            left_dimensions=self.feature_dimensions(schema) + 1,
            right_dimensions=schema.num_classes,
            records_per_unit=schema.records_per_unit,
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        gradient = calibrate(mechanism, (ledger_units - start.cost()) / self.steps)
        return Plan(releases=(*start.releases, gradient.model_copy(update={"count": self.steps})))

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        gradients = plan.releases[-1].count
        return {plan.steps - gradients: 1 + ENCODING_LENGTH * gradients}

    def feature_encoder(self) -> Encoder:
        """Return the public function that computes features of an image."""
        return ScatteringEncoder()

    def feature_dimensions(self, schema: Schema) -> int:
        """Return the number of features of a record: all of the encoder, or at most `dimensions` in a basis."""
        features = self.feature_encoder().dimensions(schema)
        return features if self.warm_start is None else min(self.dimensions, features, self.samples)


class Scattering(ScatteringGradients):
    """Parameters of a classifier on its own, started from moments."""

    instead: ClassVar[str] = "⟦method.encoder⟧ imagenet-lite0, the method dp_sgd"

    facts = Facts(
        title="Scattering",
        summary="what its warm start releases, then noisy gradients of a linear classifier on public features",
        result="classifier", public_images="start", levels=None, memory=NEXT_TO_NONE,
        measured_as="scattering", image_seconds=0.0,
    )  # fmt: skip

    name: Literal["scattering"] = "scattering"
    encoder: Annotated[AnyEncoder, Field(discriminator="name"), BeforeValidator(named)] = Field(
        default=ScatteringEncoder(),
        exclude_if=lambda encoder: encoder == ScatteringEncoder(),
        description="Public function that makes features of an image. With another than `scattering`, `warm_start` "
        "is null unless named: all of μ² is for the gradients.",
    )
    warm_start: Annotated[
        Annotated[Moments | PooledMoments | DeadLeaves, Field(discriminator="name")] | None, BeforeValidator(named)
    ] = Field(default=Moments(), description="Whose samples show how features vary; `dead_leaves` are public drawings.")

    @model_validator(mode="before")
    @classmethod
    def _other_encoders_start_from_nothing(cls, stated: Any) -> Any:
        """Start from nothing unless the encoder is wavelets, for which the default is."""
        if isinstance(stated, dict) and not _is_scattering(stated.get("encoder", "scattering")):
            return {"warm_start": None} | stated
        return stated

    @model_validator(mode="after")
    def _samples_are_for_wavelets(self) -> Self:
        """Refuse samples for an encoder that has seen photographs, which learns little from them."""
        if self.warm_start is not None and not _is_scattering(self.encoder):
            refusal = f"⟦method.warm_start⟧ does not apply with ⟦method.encoder⟧ {self.encoder.name}: let it be null."
            raise ValueError(speak(refusal))
        return self

    def feature_encoder(self) -> Encoder:
        return self.encoder

    def network_bytes(self, schema: Schema) -> float:
        return 0 if self.warm_start is None else _BYTES_OF_A_FITTED_PIXEL * self.samples * schema.dimensions

    def refusal_of_public_data(self) -> str:
        return "without ⟦method.warm_start⟧ features are those of the encoder alone." if self.warm_start is None else ""

    def public_inputs(self) -> PublicInputs:
        return PublicInputs(encoder=self.encoder.source())

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        return Outcome((yield from self.learn_classifier(plan, records, inputs, Outcome)))

    def learn_classifier(
        self, plan: Plan, records: PrivateRecords, inputs: RunInputs, outcome: Callable[[Classifier], Outcome]
    ) -> Coroutine[Ask, Any, Classifier]:
        """Learn the classifier, for a caller that makes an outcome of the classifier so far."""
        start = yield from self._ask_start(plan, records, inputs)
        layer = LinearLayer(self, plan.releases[-1], start, records.schema, inputs)
        yield from layer.descend(records, lambda: outcome(layer.classifier()))
        return layer.classifier()

    def _ask_start(
        self, plan: Plan, records: PrivateRecords, inputs: RunInputs
    ) -> Coroutine[Ask, Any, Generator | None]:
        if self.warm_start is None or isinstance(self.warm_start, DeadLeaves):
            return None
        # Public images are seen beside the samples of the start, and not by it.
        first = Plan(releases=plan.releases[:-1])
        return (yield from self.warm_start.run(first, records, replace(inputs, public=None))).generator


def encoded_features(rows: Rows, basis: FeatureBasis) -> Floats32:
    """Compute features of images, on the grid, with a constant for the bias."""
    return _rounded(basis.features(rows.values))


def _rounded(features: Floats32) -> Floats32:
    """Round features to the grid, in place."""
    for start in range(0, len(features), _ROWS):
        block = slice(start, start + _ROWS)
        features[block] = on_grid(features[block], 1.0)
    return features


class LinearLayer:
    """A linear layer that follows noisy gradients only, over features of a basis fitted to public and released images.

    Args:
        gradients: The planned release of gradients.
        start: The model whose samples the basis is fitted to; None: it is fitted to public pictures, or there is none.
    """

    def __init__(
        self,
        parameters: ScatteringGradients,
        gradients: PlannedRelease,
        start: Generator | None,
        schema: Schema,
        inputs: RunInputs,
    ) -> None:
        if not isinstance(gradients.mechanism, CrossProductSum):
            raise TypeError("the last release of a scattering plan is a gradient")
        self._parameters, self._schema, self._inputs = parameters, schema, inputs
        self._gradients, self._start = gradients, start
        self._learning_rate = parameters.learning_rate or choose_learning_rate(
            schema, gradients, has_samples=start is not None
        )
        self._weights = np.zeros((gradients.mechanism.left_dimensions, schema.num_classes), dtype=np.float32)
        self.basis = self._fit_basis()
        self._average, self._velocity = self._weights, np.zeros_like(self._weights)

    def descend(
        self, records: PrivateRecords, outcome: Callable[[], Outcome]
    ) -> Coroutine[Ask, NDArray[np.float64], None]:
        """Ask for the gradients, and follow each.

        Args:
            records: Images.
            outcome: Returns what there is after the gradients so far.
        """
        tell = tell_part(self._inputs.options.tell, self._share_of_samples(), 1.0)
        features = records.map(encoded_features, self.basis, tell)
        for _ in range(self._gradients.count):
            seen = Layer(self._weights, self._parameters.error_norm)
            self._follow((yield Ask(features, self._gradients.mechanism, layer_gradients, seen, outcome)))

    def classifier(self) -> Classifier:
        """Return the classifier with the average of its weights so far."""
        from datalens_service.models.classifiers.encoded_features import as_classifier

        return as_classifier(self.basis, self._average)

    def _share_of_samples(self) -> float:
        """Return the share of samples among all images that are encoded before the first gradient."""
        schema, parameters = self._schema, self._parameters
        samples = parameters.samples if parameters.warm_start is not None else 0
        return samples / (samples + schema.num_units * schema.records_per_unit)

    def _fit_basis(self) -> FeatureBasis:
        """Fit the basis, and the first weights, too, where there are labelled images to fit them to."""
        from datalens_service.models.classifiers.encoded_features import FeatureBasis

        parameters, schema, encoder = self._parameters, self._schema, self._parameters.feature_encoder()
        options, randomness = self._inputs.options, self._inputs.randomness
        has_basis = parameters.warm_start is not None
        dimensions = parameters.feature_dimensions(schema) if has_basis else None
        constant = self._choose_constant()
        basis = FeatureBasis.from_encoder(encoder, schema, options.device, dimensions, options.encoder, constant)
        if has_basis:
            seen, labels = self._seen_images()
            tell = tell_part(options.tell, 0.0, self._share_of_samples())
            basis.fit(seen, parameters.evenness, randomness.seed("basis"), tell)
            if len(labels):
                features = basis.features(seen[: len(labels)])
                self._weights = fit_linear_classifier(features, labels, schema.num_classes)
        return basis

    def _choose_constant(self) -> float:
        """Choose the bias's constant beside features of length 1: small where few records would teach it little."""
        from datalens_service.models.classifiers.encoded_features import SMALL_CONSTANT

        return 1.0 if isinstance(self._parameters.warm_start, Moments | Shapes) else SMALL_CONSTANT

    def _seen_images(self) -> tuple[Images, Labels]:
        """Return samples and as many public images, and the labels of those at the front with private classes."""
        parameters, schema, public = self._parameters, self._schema, self._inputs.public
        if self._start is None:
            images = draw_dead_leaves(schema, parameters.samples, self._inputs.randomness.numpy("samples"))
            labels = np.empty(0, dtype=np.int64)
        else:
            seed = self._inputs.randomness.seed("samples")
            images, labels = self._start.to_learn_from().sample(parameters.samples, seed=seed)
        if public is None:
            return images, labels
        some = spread_over(public, len(images))
        shown = some.labels if public.schema.class_names == schema.class_names else labels[:0]
        parts = [images, some.images] if len(labels) else [some.images, images]
        return np.concatenate(parts), np.concatenate([labels, shown])

    def _follow(self, released: NDArray[np.float64]) -> None:
        """Take one step along a noisy sum of gradients, divided by the public number of records."""
        parameters, schema = self._parameters, self._schema
        records = schema.num_units * schema.records_per_unit
        gradient = (released * (parameters.error_norm / records)).astype(np.float32)
        self._velocity = np.float32(parameters.momentum) * self._velocity + gradient
        self._weights = self._weights - np.float32(self._learning_rate) * self._velocity
        share = np.float32(parameters.averaging)
        self._average = share * self._average + (1 - share) * self._weights


def choose_learning_rate(schema: Schema, gradients: PlannedRelease, *, has_samples: bool = True) -> float:
    """Choose the step length, from public numbers: noise moves weights in proportion to rate over n·μ."""
    rate = _RATE_PER_EVIDENCE if has_samples else _RATE_WITHOUT_SAMPLES / math.sqrt(schema.num_classes)
    mu = mu_of_ledger_units(gradients.cost())
    return min(_HIGHEST_RATE, rate * schema.num_units * mu)
