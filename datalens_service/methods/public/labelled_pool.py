"""Labelled pool: public images with labels that a privately trained classifier gives them.

    the releases of `scattering` → a classifier; its probabilities of every public image and of parts of it
    (post-processing)

This serves the purpose of PATE (Papernot et al. 2017, "Semi-supervised knowledge transfer for deep learning from
private training data") without its price for each answer: the classifier is released, so its answers are free. A
student that learns from public images and soft labels sees no private record. One that sees as many crops, each with a
label of its own, learns more of what the classifier knows (Beyer et al. 2022, "Knowledge distillation: a good teacher
is patient and consistent").
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from datalens_service.base.fields import Number
from datalens_service.base.progress import told_blocks
from datalens_service.data.dataset import Images, Schema
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import Method, Plan, named
from datalens_service.methods.facts import NEXT_TO_NONE, Facts
from datalens_service.methods.last_layer.scattering import Scattering
from datalens_service.methods.public_start import PublicImages
from datalens_service.methods.script import Extras, Outcome, RunInputs, Script
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.pool import pack
from datalens_service.models.public_source import PublicInputs

if TYPE_CHECKING:
    from datalens_service.models.classifiers.classifier import Classifier

# Times chance: below it a classifier says nothing of an image.
_ABOVE_CHANCE: Final = 1.5
_LABELLED_AT_ONCE: Final = 2048


class LabelledPool(Method):
    """Parameters of a classifier that labels public images."""

    facts = Facts(
        title="Labelled pool", summary="what `scattering` releases, a classifier, which labels public images",
        result="generator", public_images="material", levels=None, memory=NEXT_TO_NONE,
        measured_as="scattering", image_seconds=1e-4,
    )  # fmt: skip

    name: Literal["labelled_pool"] = "labelled_pool"
    classifier: Annotated[Scattering, BeforeValidator(named)] = Scattering()
    temperature: Number = Field(
        default=2.0, ge=0.1, le=10, description="Divides the logarithms of probabilities: below 1 labels are sharper."
    )

    @property
    def crops(self) -> bool:
        """Tell whether crops of public images are handed out beside them, which a network of photographs can see."""
        return self.public_inputs().has_weights

    def network_bytes(self, schema: Schema) -> float:
        return 2 * self.classifier.network_bytes(schema)

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        return self.classifier.plan(schema, ledger_units)

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        handed_out = "and parts of them are handed out" if self.crops else "are handed out as they are"
        return (f"Public images {handed_out}; their labels are what is learned from private ones.",)

    def public_inputs(self) -> PublicInputs:
        return self.classifier.public_inputs()

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        return self.classifier.lengths(plan, schema, public=public)

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.models.generators.augmentation import with_crops

        images, schema = np.asarray(inputs.pool.images), inputs.pool.schema
        pool = with_crops(images, inputs.randomness.numpy("crops")) if self.crops else images
        unlabelled = PublicImages(
            schema.model_copy(update={"class_names": ("image",)}), images, np.zeros(len(images), dtype=np.int64)
        )

        def label(classifier: Classifier, images: Images) -> Outcome:
            blocks = told_blocks(len(images), _LABELLED_AT_ONCE, inputs.options.tell)
            said = np.concatenate([classifier.predict(images[rows]) for rows in blocks])
            likely = said.astype(np.float64) ** (1 / self.temperature)
            soft_labels = (likely / likely.sum(axis=1, keepdims=True)).astype(np.float32)
            model = Generator("pool", records.schema, {}, pack(images, tell_apart(said), soft_labels))
            return Outcome(model, extras=Extras(classifier.files()))

        # Outcomes on the way do without crops, which take minutes.
        public = replace(inputs, public=unlabelled)
        classifier = yield from self.classifier.learn_classifier(
            plan, records, public, lambda so_far: label(so_far, images)
        )
        return label(classifier, pool)


def tell_apart(soft_labels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return weights (n, classes) for drawing: the probability of the likeliest class, or 0 if that is near chance."""
    likeliest = soft_labels == soft_labels.max(axis=1, keepdims=True)
    told = likeliest & (soft_labels >= _ABOVE_CHANCE / soft_labels.shape[1])
    # A class that is nowhere the likeliest has the images that come nearest to it.
    return np.where(told | ~told.any(axis=0), soft_labels, np.float32(0))
