"""Labelled moments: images of pooled moments, with soft labels of a classifier that learned from the same records.

    pooled moments → samples → a basis of scattering features and first weights (post-processing);
    then, `steps` times, one noisy gradient of a linear layer over all records;
    samples carry labels between the class that they were drawn for and what the classifier sees in them.

Relabelling samples by a private classifier is QUAIL's idea for tables (Rosenblatt et al. 2020, "Differentially private
synthetic data: applied evaluations and enhancements").
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import ExecutionOptions, Extras, Plan, named
from datalens_service.methods.last_layer.scattering import ScatteringGradients, ScatteringGradientsRun
from datalens_service.methods.sums.pooled_moments import PooledMoments, PooledMomentsRun
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.randomness import TrainingRandomness
from datalens_service.strict import Number

_TEXTURE: Final = 1.0
"""All of it: without it the classifier tells little of samples beside the class that they were drawn for."""


class LabelledMoments(ScatteringGradients):
    """Parameters of labelled moments (docs/methods.md); constants were chosen on MNIST and Fashion-MNIST."""

    starts_from_public_data: ClassVar[bool] = False
    instead: ClassVar[str] = "the method pooled_moments"

    name: Literal["labelled_moments"] = "labelled_moments"
    warm_start: Annotated[PooledMoments, BeforeValidator(named)] = PooledMoments()
    gradient_share: Number = Field(default=0.4, gt=0, lt=1, description="Share of μ² for the gradients.")

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        """What models have to learn from."""
        return (
            "Models should learn from the soft labels of the files, as those do whose accuracy is told: the class of "
            "an image alone teaches less.",
        )

    def start_run(
        self, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> LabelledMomentsRun:
        """A run of the releases of `plan`."""
        return LabelledMomentsRun(self, plan, records, randomness, options)


class LabelledMomentsRun(ScatteringGradientsRun):
    """Hands out the moments together with the classifier."""

    def result(self) -> Generator:
        """The moments, and the classifier with the average of its weights so far."""
        from datalens_service.models.generators.gaussian import labelled

        if not isinstance(self._warm, PooledMomentsRun):
            raise TypeError("labelled moments start from pooled moments")
        classifier = self._classifier()
        tensors = labelled.pack(self._warm.tensors(_TEXTURE), classifier.tensors)
        return Generator("labelled", self._records.schema, {"classifier": classifier.settings}, tensors)

    def extras(self, epsilon: float, delta: float) -> Extras:
        """The classifier, which is released, too."""
        return Extras(self._classifier().files())
