"""Labelled pool: public images with labels that a privately trained classifier gives them.

    the releases of `scattering` → a classifier; its probabilities of every public image and of parts of it
    (post-processing)

What PATE was for (Papernot et al. 2017, "Semi-supervised knowledge transfer for deep learning from private training
data"), without its price for each answer: the classifier is released, so its answers are free. A student that learns
from public images and soft labels sees no private record. One that sees as many crops, each with a label of its own,
learns more of what the classifier knows (Beyer et al. 2022, "Knowledge distillation: a good teacher is patient and
consistent").
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import Account
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import ExecutionOptions, Extras, Plan, WalledMethod, named
from datalens_service.methods.last_layer.scattering import Scattering
from datalens_service.methods.public_start import PublicImages
from datalens_service.methods.sums.record_sums import StatelessRun
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.pool import pack
from datalens_service.models.public_source import PublicEncoder
from datalens_service.phases import told_blocks
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.strict import Number

# Times chance: below it a classifier says nothing of an image.
_ABOVE_CHANCE: Final = 1.5
_LABELLED_AT_ONCE: Final = 2048


class LabelledPool(WalledMethod):
    """Parameters of a classifier that labels public images."""

    starts_from_public_data: ClassVar[bool] = True
    needs_public_images: ClassVar[bool] = True

    name: Literal["labelled_pool"] = "labelled_pool"
    classifier: Annotated[Scattering, BeforeValidator(named)] = Scattering()
    temperature: Number = Field(
        default=2.0, ge=0.1, le=10, description="Divides the logarithms of probabilities: below 1 labels are sharper."
    )

    @property
    def crops(self) -> bool:
        """Whether parts of public images are handed out beside them: where a network of photographs sees them."""
        return self.public_encoder() is not None

    def plan(self, schema: Schema, units: int) -> Plan:
        """The releases of the classifier."""
        return self.classifier.plan(schema, units)

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        """That released images are those of the pool."""
        handed_out = "and parts of them are handed out" if self.crops else "are handed out as they are"
        return (f"Public images {handed_out}; their labels are what is learned from private ones.",)

    def public_encoder(self) -> PublicEncoder | None:
        """That of the classifier."""
        return self.classifier.public_encoder()

    def start_run(
        self, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> LabelledPoolRun:
        """A run of the classifier's releases."""
        return LabelledPoolRun(self, plan, records, randomness, options)


def tell_apart(soft_labels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights (n, classes) for drawing: the probability of the likeliest class, or none if that is near chance."""
    likeliest = soft_labels == soft_labels.max(axis=1, keepdims=True)
    told = likeliest & (soft_labels >= _ABOVE_CHANCE / soft_labels.shape[1])
    # A class that is nowhere the likeliest has the images that come nearest to it.
    return np.where(told | ~told.any(axis=0), soft_labels, np.float32(0))


class LabelledPoolRun(StatelessRun):
    """The run of a classifier, whose result is a pool with its labels."""

    def __init__(
        self,
        parameters: LabelledPool,
        plan: Plan,
        records: PrivateRecords,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._parameters, self._schema, self._tell = parameters, records.schema, options.tell
        self._randomness, self._ended = randomness, False
        self._teacher = parameters.classifier.start_run(plan, records, randomness, options)

    def start_from(self, public: PublicImages) -> None:
        """Take the pool without its labels; features of wavelets are fitted to it, too."""
        from datalens_service.models.generators.augmentation import with_crops

        images = np.asarray(public.images)
        schema = public.schema.model_copy(update={"class_names": ("image",)})
        self._teacher.start_from(PublicImages(schema, images, np.zeros(len(images), dtype=np.int64)))
        self._images = self._pool = images
        if self._parameters.crops:
            self._pool = with_crops(images, self._randomness.numpy("crops"))

    @property
    def steps(self) -> int:
        """Those of the classifier."""
        return self._teacher.steps

    def lengths(self) -> dict[int, int]:
        """As the classifier."""
        return self._teacher.lengths()

    def may_stop_before(self, step: int) -> bool:
        """As the classifier."""
        return self._teacher.may_stop_before(step)

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """A release of the classifier."""
        self._teacher.step(step, account, noise)
        self._ended = step == self.steps - 1

    def result(self) -> Generator:
        """The pool, labelled by the classifier so far; previews do without crops, which take minutes."""
        teacher, pool = self._teacher.result(), self._pool if self._ended else self._images
        parts = [teacher.predict(pool[rows]) for rows in told_blocks(len(pool), _LABELLED_AT_ONCE, self._tell)]
        said = np.concatenate(parts)
        likely = said.astype(np.float64) ** (1 / self._parameters.temperature)
        soft_labels = (likely / likely.sum(axis=1, keepdims=True)).astype(np.float32)
        return Generator("pool", self._schema, {}, pack(pool, tell_apart(said), soft_labels))

    def extras(self, epsilon: float, delta: float) -> Extras:
        """The classifier, which is released, too."""
        return Extras(self._teacher.result().files())
