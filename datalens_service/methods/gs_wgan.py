"""GS-WGAN: critics on disjoint shards send clipped gradients by the generated images.

Chen, Orekondy and Fritz 2020, "GS-WGAN: A Gradient-Sanitized Approach for Learning Differentially Private Generators",
without its lots: all critics answer for all images (docs/mechanisms/clipped_rows.md says why). The loop is DataLens'.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, final

from pydantic import BeforeValidator, Field

from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import ClippedRowsParameters, VoteMechanism, VoteParameters
from datalens_service.methods.base import ExecutionOptions, Plan, TrainingRun, named
from datalens_service.methods.datalens.teachers import AnyTeacher, KernelTeacher
from datalens_service.methods.datalens.voting import VotingMethod
from datalens_service.privacy.randomness import TrainingRandomness
from datalens_service.strict import Integer, Number


@final
class GsWgan(VotingMethod):
    """Parameters of GS-WGAN; the defaults learn in minutes on two cores, the authors' are the preset `gs_wgan_paper`.

    A critic is the closed form of the best one for the energy distance, or a network.
    """

    usual_student_learning_rate: ClassVar[float] = 6e-3

    name: Literal["gs_wgan"] = "gs_wgan"
    num_teachers: Integer = Field(default=4000, ge=1, le=100_000, description="Critics; one shard of records each.")
    teacher: Annotated[AnyTeacher, Field(discriminator="name"), BeforeValidator(named)] = Field(
        default=KernelTeacher(batch=20), description="The best critic in closed form, or a network."
    )
    shards: Literal["mixed", "class_pure"] = Field(
        default="class_pure", description="class_pure: a critic holds, and answers for, one class only."
    )
    images_per_step: Integer = Field(default=100, ge=1, le=1024, description="Synthetic images per step.")
    votes: Annotated[ClippedRowsParameters, BeforeValidator(named)] = Field(
        default=ClippedRowsParameters(), description="Clipped gradients."
    )
    clip: Number = Field(default=0.05, gt=0, description="C: largest length of a critic's gradient for one image.")
    vote_basis: Literal["pixels", "dct"] = Field(
        default="dct", description="dct: gradients by low-frequency cosine coefficients instead of pixels."
    )
    steps: Integer | None = Field(default=100, ge=1, le=100_000, description="Batches of images.")
    z_dim: Integer = Field(default=16, ge=1, le=1024, description="Length of the student's latent vector.")
    student: Literal["deconv", "class_networks"] = Field(
        default="class_networks", description="The generator of DataLens, or a small one per class."
    )
    image_step_size: Number = Field(default=4.0, gt=0, description="How far an image moves where all critics agree.")
    student_averaging: Number = Field(default=0.9, ge=0, lt=1, description="Decay of the average of student weights.")

    def vote_parameters(self) -> VoteParameters:
        """Of the gradients."""
        return self.votes

    def build_votes(self, common: dict[str, Any]) -> VoteMechanism:
        """The gradients."""
        return self.votes.build(common | {"clip": self.clip, "stochastic": False, "threshold": "none"})

    def create_run(
        self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> TrainingRun:
        """A run of the releases of `plan`."""
        from datalens_service.methods.datalens.training_run import DataLensRun

        return DataLensRun(self, plan, dataset, randomness, options)
