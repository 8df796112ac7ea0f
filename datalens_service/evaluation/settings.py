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
# About 20 seconds on one core for each repetition.
_FEW_PIXELS: Final = 20_000_000
_REPETITIONS: Final = 3
# Bytes in memory: 85,600 images of 28×28, 5,461 of 64×64 in colour.
_MOST_NUMBERS: Final = 2**26
_SMALL_SIDE: Final = 32

ReferenceName = Literal["test", "holdout", "training"]


class EvaluationSettings(Frozen):
    """The settings by which synthetic images are measured.

    By default about a minute's work on two cores for images like MNIST's. The published protocol, which
    `benchmarks/utility.py` follows, is `epochs` = 4 and `batch_size` = 256: as many steps, with twice as many images.

    Figures computed on private images are for the owner alone and spend nothing. Only `holdout` spends: from the
    account of the data set that it names, never from the one that is trained on.
    """

    enabled: Flag = Field(default=True, description="Measure at all.")
    synthetic_images: Integer = Field(
        default=30_000,
        ge=1,
        le=1_000_000,
        description="Synthetic images that the classifier is trained on. Of large images fewer, of 67 million numbers "
        "in all, in as many steps; of sides above 32 pixels in half as many.",
    )
    epochs: Integer = Field(
        default=2, ge=1, le=200, description="Passes over the training images; the last one counts."
    )
    batch_size: Integer = Field(default=128, ge=1, le=4096, description="Images per training step of the classifier.")
    seeds: Annotated[Integer, Field(ge=1, le=20)] | None = Field(
        default=None,
        description="Repetitions; with two or more, spread and 95 % interval are reported. Left out: three where all "
        "training images of the classifier have at most 20 million pixels together over all epochs, else one.",
    )
    floors: Flag = Field(default=True, description="Measure what much simpler private releases would reach.")
    ceiling: Flag = Field(default=True, description="Measure what the real training images would reach.")
    stronger_classifier: Flag = Field(
        default=False,
        description="Train a small residual network as well; about five times the work of the standard CNN.",
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
        """Return how often a classifier is trained; once if no number is given."""
        return self.seeds or 1

    def bounded_for(self, schema: Schema) -> Self:
        """Fix the repetitions, and limit images to those that fit into memory, by public numbers alone."""
        pixels = self.synthetic_images * self.epochs * schema.height * schema.width
        automatic = _REPETITIONS if pixels <= _FEW_PIXELS else 1
        images = min(self.synthetic_images, _MOST_NUMBERS // schema.dimensions)
        shown = self.epochs * self.synthetic_images
        if max(schema.height, schema.width) > _SMALL_SIDE:
            shown //= 2
        epochs = -(-shown // images)
        return self.model_copy(update={"seeds": self.seeds or automatic, "synthetic_images": images, "epochs": epochs})

    @model_validator(mode="after")
    def _reference_exists(self) -> Self:
        if self.reference == "holdout" and self.holdout is None:
            raise ValueError(speak("⟦evaluation.reference⟧ holdout needs ⟦evaluation.holdout⟧, the id of a data set."))
        if len(set(self.fidelity)) < len(self.fidelity):
            raise ValueError(speak("⟦evaluation.fidelity⟧ names an extractor twice."))
        return self
