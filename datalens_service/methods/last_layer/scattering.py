"""Scattering: a linear classifier on fixed wavelet features, by noisy gradients over all records.

    moments → samples → a basis of features and first weights (post-processing);
    then, `steps` times, one noisy gradient of the linear layer over all records.

Public images, if a job names some, are seen beside the samples.

Tramèr and Boneh 2021, "Differentially private learning needs better features (or much more data)", train linear layers
on scattering features with DP-SGD. Here released samples also say along which directions features vary: with a basis
that evens these out in part, the descent needs fewer steps, and noise falls on fewer weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from datalens_service.data.dataset import Dataset, Images, Labels, Schema, Upload
from datalens_service.errors import InvalidSpec
from datalens_service.mechanisms import Account, CrossProductSum
from datalens_service.mechanisms.cross_product import OuterProductFactors
from datalens_service.mechanisms.planned_release import PlannedRelease
from datalens_service.methods.base import ExecutionOptions, Method, Plan, named
from datalens_service.methods.last_layer.guided import fit_linear_classifier, softmax_errors
from datalens_service.methods.public_start import check_same_size, spread_over
from datalens_service.methods.sums.moments import Moments, MomentsRun
from datalens_service.methods.sums.record_sums import StatelessRun, calibrated
from datalens_service.methods.sums.shapes import Shapes, ShapesRun
from datalens_service.models.classifiers.sizes import fits_scattering, largest_scattering_size, num_features
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.privacy.accounting import NeighboringRelation, mu_of_units
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from datalens_service.strict import Integer, Number

if TYPE_CHECKING:
    from datalens_service.models.classifiers.classifier import Classifier
    from datalens_service.models.classifiers.scattering_features import FeatureBasis

Floats = NDArray[np.float32]

# Of n·μ, for 60 steps: on a part of MNIST's training images, best at ε = 1 and at ε = 0.1.
_RATE_PER_EVIDENCE: Final = 0.019
_HIGHEST_RATE: Final = 300.0


class ScatteringGradients(Method):
    """Parameters of noisy gradients of a linear layer on scattering features, after a method whose samples it sees.

    The defaults were chosen on a part of MNIST's training images (docs/classifiers.md).
    """

    starts_from_public_data: ClassVar[bool] = True
    instead: ClassVar[str]
    """Method with the same kind of result for larger images."""

    warm_start: Moments | Shapes
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

    def plan(self, schema: Schema, units: int) -> Plan:
        """Releases of the start, then the gradients.

        Raises:
            InfeasiblePlan: The noise would have to be larger than the sampler can draw.
            InvalidSpec: The images are too large.
        """
        if not fits_scattering(schema):
            raise InvalidSpec(
                f"The images are too large for scattering features: choose the method {self.instead}, or prepare "
                f"them at {largest_scattering_size(schema)} (⟦prepare_size⟧)."
            )
        start = self.warm_start.plan(schema, math.floor((1 - self.gradient_share) * units))
        mechanism = CrossProductSum(
            left_dimensions=self.feature_dimensions(schema) + 1,
            right_dimensions=schema.num_classes,
            records_per_unit=schema.records_per_unit,
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        gradient = calibrated(mechanism, (units - start.units()) / self.steps)
        return Plan(releases=(*start.releases, gradient.model_copy(update={"count": self.steps})))

    def feature_dimensions(self, schema: Schema) -> int:
        """Features of one record; small images have fewer."""
        return min(self.dimensions, num_features(schema), self.samples)


class Scattering(ScatteringGradients):
    """Parameters of a classifier on its own, started from moments."""

    result: ClassVar[str] = "classifier"
    instead: ClassVar[str] = "dp_sgd"

    name: Literal["scattering"] = "scattering"
    warm_start: Annotated[Moments, BeforeValidator(named)] = Moments()

    def create_run(
        self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> ScatteringRun:
        """A run of the releases of `plan`."""
        return ScatteringRun(self, plan, dataset, randomness, options)


class ScatteringGradientsRun(StatelessRun):
    """The releases of the warm start, then the gradients of a linear layer.

    Private: the records' features. Released: the weights, which follow noisy gradients only.
    """

    def __init__(
        self,
        parameters: ScatteringGradients,
        plan: Plan,
        dataset: Dataset,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._parameters, self._dataset, self._randomness = parameters, dataset, randomness
        self._device = options.device
        start = Plan(releases=plan.releases[:-1])
        self._warm: MomentsRun | ShapesRun = parameters.warm_start.create_run(start, dataset, randomness, options)
        gradients = plan.releases[-1]
        if not isinstance(gradients.mechanism, CrossProductSum):
            raise TypeError("the last release of a scattering plan is a gradient")
        self._gradients, self._gradient_steps = gradients.mechanism, gradients.count
        self._learning_rate = parameters.learning_rate or learning_rate_for(dataset.schema, gradients)
        self._basis: FeatureBasis | None = None
        self._features: Floats | None = None
        self._public: Upload | None = None

    def start_from(self, public: Upload) -> None:
        """Fit the basis to public images beside the samples, and the first weights where classes are the same.

        Raises:
            InvalidSpec: The images have another size.
        """
        check_same_size(self._dataset.schema, public.schema)
        self._public = public

    @property
    def steps(self) -> int:
        """Those of the warm start, then one for each gradient."""
        return self._warm.steps + self._gradient_steps

    def may_stop_before(self, step: int) -> bool:
        """Gradients improve weights that released samples gave."""
        return step >= self._warm.steps

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """A release of the warm start, or one gradient."""
        if step < self._warm.steps:
            self._warm.step(step, account, noise)
            return
        self._fit_basis()
        released = self._gradients.release(self._factors, step=step, account=account, noise=noise)
        self._apply_gradient(released)

    def _classifier(self) -> Classifier:
        """The classifier with the average of its weights so far."""
        from datalens_service.models.classifiers.scattering_features import as_classifier

        return as_classifier(self._fit_basis(), self._average)

    def _fit_basis(self) -> FeatureBasis:
        """The basis, and first weights, once the warm start is complete."""
        from datalens_service.models.classifiers.scattering_features import FeatureBasis

        if self._basis is None:
            parameters, schema = self._parameters, self._dataset.schema
            images, labels = self._warm.result().sample(parameters.samples, seed=self._randomness.seed("samples"))
            seen, shown = self._beside_public(images, labels)
            dimensions = parameters.feature_dimensions(schema)
            seed = self._randomness.seed("basis")
            self._basis = FeatureBasis.fit(schema, seen, dimensions, parameters.evenness, seed, self._device)
            # Public images of other classes are last, and without a label here.
            features = self._basis.features(seen[: len(shown)])
            self._weights = fit_linear_classifier(features, shown, schema.num_classes)
            self._average, self._velocity = self._weights, np.zeros_like(self._weights)
        return self._basis

    def _beside_public(self, images: Images, labels: Labels) -> tuple[Images, Labels]:
        """Samples and as many public images, and labels of those whose classes are the private ones."""
        if self._public is None:
            return images, labels
        public = spread_over(self._public.train, len(images))
        seen = np.concatenate([images, public.images])
        same = self._public.schema.class_names == self._dataset.schema.class_names
        return seen, np.concatenate([labels, public.labels]) if same else labels

    def _factors(self) -> OuterProductFactors:
        """Private: per record its features, with a 1 for the bias, and the error of its scores."""
        train = self._dataset.train
        if self._features is None:
            self._features = on_grid(self._fit_basis().features(train.images), 1.0)
        scores = exact_products(self._features, self._weights).astype(np.float32)
        errors = softmax_errors(scores, train.labels) / np.float32(self._parameters.error_norm)
        return OuterProductFactors(self._features, errors, train.unit_ids)

    def _apply_gradient(self, released: NDArray[np.float64]) -> None:
        """One step along a noisy sum of gradients; the number of records it is divided by is public."""
        parameters, schema = self._parameters, self._dataset.schema
        records = schema.num_units * schema.records_per_unit
        gradient = (released * (parameters.error_norm / records)).astype(np.float32)
        self._velocity = np.float32(parameters.momentum) * self._velocity + gradient
        self._weights = self._weights - np.float32(self._learning_rate) * self._velocity
        share = np.float32(parameters.averaging)
        self._average = share * self._average + (1 - share) * self._weights


class ScatteringRun(ScatteringGradientsRun):
    """Hands out the classifier."""

    def result(self) -> Classifier:
        """The classifier with the average of its weights so far."""
        return self._classifier()


def learning_rate_for(schema: Schema, gradients: PlannedRelease) -> float:
    """How far weights follow a gradient, from public numbers: noise walks them away in proportion to rate over n·μ."""
    mu = mu_of_units(gradients.units(NeighboringRelation.ZERO_OUT))
    return min(_HIGHEST_RATE, _RATE_PER_EVIDENCE * schema.num_units * mu)
