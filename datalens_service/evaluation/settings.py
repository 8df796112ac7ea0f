"""The measurements of a job after training; part of the spec, so this module imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from datalens_service.base.fields import Flag, Frozen, Integer
from datalens_service.base.plugins import EXTRACTORS, list_plugins
from datalens_service.base.wording import speak
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms.accuracy import DEFAULT_NOISE_STDDEV
from datalens_service.privacy.accounting import MINIMUM_NOISE_STDDEV
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

BUILT_IN: Final = ("domain", "random", "inception")
PLUGINS: Final = tuple(entry.name for entry in list_plugins(EXTRACTORS))
"""Extractors of other packages; their figures are for the owner alone."""

if TYPE_CHECKING:
    ExtractorKind = str
else:
    ExtractorKind = Literal[(*BUILT_IN, *PLUGINS)]
REPETITIONS: Final = 3
STEPS: Final = 1_000
BATCH: Final = 64
"""Images in a step of the standard CNN, which takes `STEPS` steps whatever the number of images."""
MOST_ENCODED: Final = 5_000
"""Images that are seen through a public encoder."""
# Bytes in memory: 85,600 images of 28×28, 5,461 of 64×64 in colour.
_MOST_NUMBERS: Final = 2**26

ReferenceName = Literal["test", "holdout", "training"]


class EvaluationSettings(Frozen):
    """The settings by which synthetic images are measured.

    The classifier is trained to convergence: in as many steps whatever the number of images, so that the work is
    bounded and figures of small and large sets can be compared.

    Figures computed on private images are for the owner alone and spend nothing. Only `holdout` spends: from the
    account of the data set that it names, never from the one that is trained on.
    """

    enabled: Flag = Field(default=True, description="Measure at all.")
    synthetic_images: Integer = Field(
        default=30_000,
        ge=1,
        le=1_000_000,
        description="Synthetic images that the classifier is trained on. Of large images fewer, of 67 million numbers "
        "in all, in as many steps.",
    )
    epochs: Integer = Field(
        default=200,
        ge=1,
        le=200,
        description="Most passes over the synthetic images. The classifier takes 1,000 steps whatever their number; "
        "fewer passes make for a quick look, at the cost of a classifier that has not learned all it could.",
    )
    batch_size: Integer = Field(
        default=BATCH, ge=1, le=4096, description="Images per training step of the classifier, of every class as many."
    )
    mirrored: Flag = Field(
        default=False,
        description="Let the classifier see images mirrored, too: for classes that do not change by it, such as "
        "photographs of things, and unlike letters.",
    )
    seeds: Annotated[Integer, Field(ge=1, le=20)] | None = Field(
        default=None,
        description="Repetitions; with two or more, spread and 95 % interval are reported. Left out: three.",
    )
    floors: Flag = Field(default=True, description="Measure what much simpler private releases would reach.")
    ceiling: Flag = Field(default=True, description="Measure what the real training images would reach.")
    stronger_classifier: Flag = Field(
        default=False,
        description="Judge by a linear model on features of imagenet-lite0 as well, where the extra for ImageNet is "
        "installed.",
    )
    fidelity: tuple[ExtractorKind, ...] = Field(
        default=("domain", "random"),
        max_length=len(BUILT_IN) + len(PLUGINS),
        description="Feature extractors for FID, KID, precision, recall and score: `domain`, a small classifier "
        "trained on half of the reference; `random`, convolutions that learn nothing; `inception`, trained on "
        "ImageNet.",
    )
    fidelity_images: Integer = Field(
        default=2_000, ge=50, le=50_000, description="Most synthetic, and most reference images, that are compared."
    )
    reference: ReferenceName = Field(
        default="test",
        description="What synthetic images are compared with for fidelity. `test`: the test split; figures can be "
        "passed on only if it was declared public. `holdout`: the data set of that name. `training`: the private "
        "training images. The last two are for the owner alone.",
    )
    holdout: str | None = Field(
        default=None,
        pattern=r"^ds_[A-Za-z0-9]{1,60}$",
        description="A data set with an account of its own. The accuracy on it is released as a noisy count and "
        "charged to that account.",
    )
    holdout_noise_stddev: Integer = Field(
        default=DEFAULT_NOISE_STDDEV,
        ge=MINIMUM_NOISE_STDDEV,
        le=MAXIMUM_NOISE_STDDEV,
        description="σ of that count, in images.",
    )

    @property
    def repetitions(self) -> int:
        """The number of times that a classifier is trained."""
        return self.seeds or REPETITIONS

    @property
    def steps(self) -> int:
        """The number of steps in which a classifier is trained."""
        return min(STEPS, -(-self.epochs * self.synthetic_images // self.batch_size))

    def bounded_for(self, schema: Schema) -> Self:
        """The same with as many images as fit into memory, by public numbers alone."""
        images = min(self.synthetic_images, _MOST_NUMBERS // schema.dimensions)
        return self.model_copy(update={"synthetic_images": images})

    @model_validator(mode="after")
    def _reference_exists(self) -> Self:
        if self.reference == "holdout" and self.holdout is None:
            raise ValueError(speak("⟦evaluation.reference⟧ holdout needs ⟦evaluation.holdout⟧, the id of a data set."))
        if len(set(self.fidelity)) < len(self.fidelity):
            raise ValueError(speak("⟦evaluation.fidelity⟧ names an extractor twice."))
        return self
