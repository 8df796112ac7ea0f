"""Parameters of a denoiser that learns from noisy clipped gradients."""

import operator
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from datalens_service.base.fields import Integer, Number
from datalens_service.methods.base import Method, named
from datalens_service.methods.facts import SAMPLES_AND_NETWORKS, Facts, Levels
from datalens_service.methods.last_layer.guided import Guided
from datalens_service.methods.last_layer.labelled_moments import LabelledMoments
from datalens_service.methods.last_layer.rejection import Rejection
from datalens_service.methods.sums.mixture import Mixture
from datalens_service.methods.sums.moments import Moments

_END_STDDEV: Final = 0.15
_GUIDANCE_SCALE: Final = 1.5


class DiffusionParameters(Method):
    """Parameters of a denoiser; constants were chosen on MNIST and Fashion-MNIST (docs/findings.md)."""

    facts = Facts(
        title="Diffusion",
        summary="what its warm start releases, then noisy gradients of a denoiser over Poisson-sampled batches",
        result="generator", public_images="start", levels=Levels(100, 300), memory=SAMPLES_AND_NETWORKS,
        measured_as="diffusion", image_seconds=2.5e-3,
    )  # fmt: skip

    name: Literal["diffusion"] = "diffusion"
    warm_start: Annotated[
        Rejection | Guided | LabelledMoments | Mixture | Moments, Field(discriminator="name"), BeforeValidator(named)
    ] = Rejection()
    warm_start_share: Number = Field(default=0.3, gt=0, lt=1, description="Share of μ² for the warm start.")
    steps: Integer = Field(default=150, ge=1, le=10_000, description="Gradients.")
    batch: Integer | None = Field(
        default=None, ge=1, description="Expected units in a batch; left out, an eighth of all."
    )
    slack: Number = Field(default=0.05, gt=0, le=0.5, description="Part of δ that is charged beside μ².")
    noise_multiplier: Number | None = Field(
        default=None, gt=0, le=1e6, description="σ over clip_norm; left out, the smallest with which `steps` fit."
    )
    clip_norm: Number = Field(
        default=0.5, gt=0, le=1000, description="Largest L2 norm of a unit's gradient; public. Most are longer."
    )
    noise_draws: Integer = Field(
        default=1, ge=1, le=64, description="Noisy copies of a record whose gradients are averaged before clipping."
    )
    learning_rate: Number = Field(default=2e-3, gt=0, le=1, description="Adam's.")
    averaging: Number = Field(default=0.95, ge=0, lt=1, description="Decay of the average of weights.")
    width: Integer = Field(default=16, ge=8, le=256, multiple_of=8, description="Maps of the denoiser's finer grid.")
    blocks: Integer = Field(default=2, ge=1, le=16, description="Residual blocks on its coarser grid.")
    pretraining_steps: Integer = Field(
        default=2000, ge=0, le=1_000_000, description="Batches of 256 samples of the warm start that it first sees."
    )
    pretraining_samples: Integer = Field(default=30_000, ge=100, le=1_000_000, description="Samples to choose from.")
    start_stddev: Number | None = Field(
        default=2.5,
        gt=0,
        le=10,
        description="Noise on the samples of the warm start that images begin at; null: they begin at noise alone.",
    )
    end_stddev: Number | None = Field(
        default=None,
        gt=0,
        lt=10,
        exclude_if=operator.not_,
        description="Noise from which the last step goes to an image at once: with less, images are grainier. Left "
        "out: 0.15, or half of start_stddev where that is less.",
    )
    guidance_scale: Number | None = Field(
        default=None,
        ge=1,
        le=10,
        exclude_if=operator.not_,
        description="Scale of classifier-free guidance: with more, classes are clearer and images less varied. 1: "
        "none, with half as many evaluations of the network. Left out: 1.5.",
    )
    path: Integer = Field(
        default=4, ge=2, le=1000, description="Steps from noise to an image, two evaluations each, four with guidance."
    )

    def last_stddev(self) -> float:
        """Return the noise level from which the last step goes to an image."""
        if self.end_stddev is not None:
            return self.end_stddev
        return _END_STDDEV if self.start_stddev is None else min(_END_STDDEV, self.start_stddev / 2)

    def strength_of_guidance(self) -> float:
        """Return the scale of classifier-free guidance."""
        return _GUIDANCE_SCALE if self.guidance_scale is None else self.guidance_scale
