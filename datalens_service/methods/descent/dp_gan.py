"""DP-GAN: a discriminator learns from noisy clipped gradients of records, a generator follows it.

Xie et al. 2018, "Differentially Private Generative Adversarial Network", with the gradients of Bie, Kamath and Zhang
2023, "Private GANs, Revisited": DP-SGD on the discriminator, several of its steps for one of the generator. Gradients
and their price are those of docs/mechanisms/gradient_sum.md; the generated half of a batch costs nothing.
"""

import math
from typing import Annotated, Literal, Self, final

from pydantic import BeforeValidator, Field, model_validator

from datalens_service.base.fields import Integer, Number
from datalens_service.base.wording import speak
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import Method, Plan, named
from datalens_service.methods.descent.dp_sgd import DpSgd
from datalens_service.methods.facts import SMALL_NETWORKS, WITHOUT_A_START, Facts, Levels
from datalens_service.methods.script import RunInputs, Script
from datalens_service.methods.sums.moments import Moments


@final
class DpGan(Method):
    """Parameters of DP-GAN; they start from released moments, a preset near the authors' is `dp_gan_paper`."""

    facts = Facts(
        title="DP-GAN", summary="noisy gradients of a discriminator",
        result="generator", public_images=None, levels=Levels(1000), memory=SMALL_NETWORKS,
        measured_as="dp_gan", image_seconds=1e-4,
    )  # fmt: skip

    name: Literal["dp_gan"] = "dp_gan"
    discriminator: Literal["small_cnn", "lenet", "mlp", "linear"] = Field(
        default="linear", description="A network of `dp_sgd` with one output per class."
    )
    steps: Integer = Field(default=20, ge=1, le=10_000, description="Gradients of the discriminator.")
    sampling: Literal["none", "poisson"] = Field(
        default="none", description="Sampling as in `dp_sgd`; poisson only without a warm start."
    )
    batch: Integer | None = Field(default=None, ge=1, description="Expected units in a batch of poisson sampling.")
    slack: Number = Field(default=0.05, gt=0, le=0.5, description="Part of δ that poisson sampling charges beside μ².")
    clip_norm: Number = Field(default=1.0, gt=0, le=1000, description="Largest L2 norm of a unit's gradient; public.")
    noise_multiplier: Number | None = Field(
        default=None, gt=0, le=1e6, description="σ over clip_norm; left out, the smallest with which `steps` fit."
    )
    discriminator_learning_rate: Number = Field(default=1e-3, gt=0, le=1, description="Adam's.")
    updates_per_generator_step: Integer = Field(
        default=2, ge=1, le=1000, description="n_D: steps of the discriminator for one of the generator."
    )
    images_per_step: Integer = Field(default=200, ge=2, le=10_000, description="Generated images per step.")
    generator: Literal["deconv", "class_networks"] = Field(
        default="class_networks", description="That of DataLens, or a small one per class; not after a warm start."
    )
    z_dim: Integer = Field(default=16, ge=1, le=1024, description="Length of the generator's latent vector.")
    generator_learning_rate: Number | None = Field(
        default=None, gt=0, le=1, description="Adam's; 1e-3, or 1e-5 if left out after a warm start."
    )
    generator_averaging: Number = Field(default=0.9, ge=0, lt=1, description="Decay of the average of its weights.")
    warm_start: Annotated[Moments | None, BeforeValidator(named)] = Field(
        default=Moments(), description="Start from released moments, or from nothing."
    )
    warm_start_share: Number = Field(default=0.95, gt=0, lt=1, description="Share of μ² for the warm start.")
    refiner_width: Integer = Field(
        default=8, ge=1, le=256, description="Maps of the network that refines a warm start."
    )

    @model_validator(mode="after")
    def _blocks_stand_alone(self) -> Self:
        if self.sampling == "poisson" and self.warm_start is not None:
            raise ValueError(speak("⟦method.sampling⟧ poisson needs ⟦method.warm_start⟧ null."))
        return self

    def evidence_levels(self) -> Levels | None:
        return WITHOUT_A_START if self.warm_start is None else super().evidence_levels()

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        if self.warm_start is None:
            return self.descent().plan(schema, ledger_units)
        start = self.warm_start.plan(schema, math.floor(self.warm_start_share * ledger_units))
        return Plan(releases=(*start.releases, *self.descent().plan(schema, ledger_units - start.cost()).releases))

    def plan_within(self, schema: Schema, epsilon: float, delta: float) -> Plan:
        if self.sampling == "poisson":
            return self.descent().plan_within(schema, epsilon, delta)
        return super().plan_within(schema, epsilon, delta)

    def descent(self) -> DpSgd:
        """Return the descent by which the discriminator learns."""
        return DpSgd(
            architecture=self.discriminator,
            steps=self.steps,
            sampling=self.sampling,
            batch=self.batch,
            slack=self.slack,
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
            optimizer="adam",
            learning_rate=self.discriminator_learning_rate,
        )

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.methods.descent.dp_gan_run import GeneratorSchedule, play

        rate = self.generator_learning_rate or (1e-3 if self.warm_start is None else 1e-5)
        schedule = GeneratorSchedule(
            generator=self.generator,
            z_dim=self.z_dim,
            refiner_width=self.refiner_width,
            learning_rate=rate,
            averaging=self.generator_averaging,
            images=self.images_per_step,
            updates=self.updates_per_generator_step,
            warm_start=self.warm_start,
        )
        return play(self.descent(), schedule, plan, records, inputs)
