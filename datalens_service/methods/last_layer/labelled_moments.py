"""Labelled moments: images of pooled moments, with soft labels of a classifier that learned from the same records.

    pooled moments → samples → a basis of scattering features and first weights (post-processing);
    then, `steps` times, one noisy gradient of a linear layer over all records;
    samples carry labels between the class they were drawn for and the classifier's probabilities.

Relabelling samples by a private classifier is QUAIL's idea for tables (Rosenblatt et al. 2020, "Differentially private
synthetic data: applied evaluations and enhancements").
"""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from datalens_service.base.fields import Number
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import Plan, named
from datalens_service.methods.facts import LEAST_EVIDENCE, SAMPLES_AND_NETWORKS, Facts, Levels
from datalens_service.methods.last_layer.scattering import LinearLayer, ScatteringGradients
from datalens_service.methods.script import Extras, Outcome, RunInputs, Script
from datalens_service.methods.sums.pooled_moments import PooledMoments, fit_pooled_moments
from datalens_service.models.generators.generator import Generator

_TEXTURE: Final = 1.0
"""All texture is drawn: without it the classifier adds little to the class that samples were drawn for."""


class LabelledMoments(ScatteringGradients):
    """Parameters of labelled moments (docs/methods.md); constants were chosen on MNIST and Fashion-MNIST."""

    instead: ClassVar[str] = "the method pooled_moments"

    facts = Facts(
        title="Labelled moments", summary="what `pooled_moments` releases, then what `scattering` does",
        result="generator", public_images=None, levels=Levels(LEAST_EVIDENCE, textured=True),
        memory=SAMPLES_AND_NETWORKS,
        measured_as="labelled_moments", image_seconds=6e-4,
    )  # fmt: skip

    name: Literal["labelled_moments"] = "labelled_moments"
    warm_start: Annotated[PooledMoments, BeforeValidator(named)] = PooledMoments()
    gradient_share: Number = Field(default=0.4, gt=0, lt=1, description="Share of μ² for the gradients.")

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        return (
            "Models should learn from the soft labels of the files, as those do whose accuracy is told: the class of "
            "an image alone teaches less.",
        )

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.models.generators.gaussian import labelled

        schema = records.schema
        view, fit = yield from fit_pooled_moments(self.warm_start, Plan(releases=plan.releases[:-1]), records)
        drawn, textured = (
            view.lift(fit.tensors(view.clip_norm, texture)) for texture in (self.warm_start.texture, _TEXTURE)
        )
        layer = LinearLayer(self, plan.releases[-1], Generator("gaussian", schema, {}, drawn), schema, inputs)

        def outcome() -> Outcome:
            classifier = layer.classifier()
            tensors = labelled.pack(textured, classifier.tensors)
            model = Generator("labelled", schema, {"classifier": classifier.settings}, tensors)
            return Outcome(model.with_class_shares(fit.shares), extras=Extras(classifier.files()))

        yield from layer.descend(records, outcome)
        return outcome()
