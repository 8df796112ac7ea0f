"""G-PATE: teachers vote on bins of projected gradients, and a generator follows the noisy histograms.

Long et al. 2021, "G-PATE: Scalable Differentially Private Data Generator via Private Aggregation of Teacher
Discriminators". The loop is DataLens'; the votes and their price are those of docs/mechanisms/histogram.md.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, final

from pydantic import BeforeValidator, Field

from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import HistogramParameters, Threshold, VoteMechanism, VoteParameters
from datalens_service.methods.base import ExecutionOptions, Plan, TrainingRun, named
from datalens_service.methods.datalens.teachers import AnyTeacher, KernelTeacher
from datalens_service.methods.datalens.voting import VotingMethod
from datalens_service.privacy.randomness import TrainingRandomness
from datalens_service.strict import Integer, Number


@final
class GPate(VotingMethod):
    """Parameters of G-PATE; the defaults learn in minutes on two cores, the authors' are the preset `g_pate_paper`."""

    usual_student_learning_rate: ClassVar[float] = 6e-3

    name: Literal["g_pate"] = "g_pate"
    num_teachers: Integer = Field(default=4000, ge=1, le=100_000, description="N; one shard of records each.")
    teacher: Annotated[AnyTeacher, Field(discriminator="name"), BeforeValidator(named)] = Field(
        default=KernelTeacher(batch=20), description="The best discriminator in closed form, or a network."
    )
    shards: Literal["mixed", "class_pure"] = Field(
        default="class_pure", description="class_pure: a teacher holds, and votes on, one class only."
    )
    images_per_step: Integer = Field(default=100, ge=1, le=1024, description="Synthetic images voted on per step.")
    votes: Annotated[HistogramParameters, BeforeValidator(named)] = Field(
        default=HistogramParameters(projections=64, bins=4), description="Histograms of projected gradients."
    )
    clip: Number = Field(default=0.2, gt=0, description="c: bins divide [−c, c].")
    threshold: Threshold = Field(
        default="none", description="β: a direction counts where the fullest bin has this share of the votes."
    )
    vote_basis: Literal["pixels", "dct"] = Field(
        default="dct", description="dct: project low-frequency cosine coefficients instead of pixels."
    )
    steps: Integer | None = Field(default=100, ge=1, le=100_000, description="Votes on a batch.")
    z_dim: Integer = Field(default=16, ge=1, le=1024, description="Length of the student's latent vector.")
    student: Literal["deconv", "class_networks"] = Field(
        default="class_networks", description="The original's generator, or a small one per class."
    )
    image_step_size: Number = Field(default=1.0, gt=0, description="γ: how far a vote moves an image.")
    student_averaging: Number = Field(default=0.9, ge=0, lt=1, description="Decay of the average of student weights.")

    def vote_parameters(self) -> VoteParameters:
        """Of the histograms."""
        return self.votes

    def build_votes(self, common: dict[str, Any]) -> VoteMechanism:
        """The histograms."""
        return self.votes.build(common | {"clip": self.clip, "stochastic": False, "threshold": self.threshold})

    def create_run(
        self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> TrainingRun:
        """A run of the releases of `plan`."""
        from datalens_service.methods.datalens.training_run import DataLensRun

        return DataLensRun(self, plan, dataset, randomness, options)
