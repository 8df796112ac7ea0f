"""PATE-GAN: teachers score generated images, a discriminator learns the noisy scores, a generator follows it.

Jordon, Yoon and van der Schaar 2019, "PATE-GAN: Generating Synthetic Data with Differential Privacy Guarantees". The
student discriminator never sees a record. Scores and their price are those of docs/mechanisms/label_scores.md.
"""

from typing import Annotated, Any, Literal, final

from pydantic import BeforeValidator, Field

from datalens_service.base.fields import Integer, Number
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import LabelScores, LabelScoresParameters, VoteMechanism, VoteParameters
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import Plan, named
from datalens_service.methods.facts import SMALL_NETWORKS, Facts, Levels
from datalens_service.methods.script import RunInputs, Script
from datalens_service.methods.sums.moments import Moments
from datalens_service.methods.voting.teachers import ConvTeacher, DenseTeacher
from datalens_service.methods.voting.voting_method import VotingMethod
from datalens_service.models.classifiers.sizes import num_weights


@final
class PateGan(VotingMethod):
    """Parameters of PATE-GAN; they start from released moments; the authors' are the preset `pate_gan_paper`."""

    facts = Facts(
        title="PATE-GAN", summary="noisy scores of generated images",
        result="generator", public_images=None, levels=Levels(1000), memory=SMALL_NETWORKS,
        measured_as="pate_gan", image_seconds=1e-4,
    )  # fmt: skip

    name: Literal["pate_gan"] = "pate_gan"
    num_teachers: Integer = Field(default=1000, ge=1, le=100_000, description="k; one shard of records each.")
    teacher: Annotated[DenseTeacher | ConvTeacher, Field(discriminator="name"), BeforeValidator(named)] = Field(
        default=DenseTeacher(batch=30, steps=2), description="A small fast network, or that of DataLens."
    )
    shards: Literal["mixed", "class_pure"] = Field(
        default="class_pure", description="class_pure: a teacher holds, and scores, one class only."
    )
    images_per_step: Integer = Field(default=100, ge=1, le=1024, description="Generated images scored per step.")
    votes: Annotated[LabelScoresParameters, BeforeValidator(named)] = Field(
        default=LabelScoresParameters(), description="Scores of images."
    )
    vote_basis: Literal["pixels"] = "pixels"
    steps: Integer | None = Field(default=50, ge=1, le=100_000, description="Batches scored.")
    discriminator: Literal["small_cnn", "lenet", "mlp", "linear"] = Field(
        default="mlp", description="The student: a network of `dp_sgd` with one output per class."
    )
    discriminator_steps: Integer = Field(default=5, ge=1, le=100, description="n_S: of the student, per batch scored.")
    discriminator_learning_rate: Number = Field(default=1e-3, gt=0, le=1, description="Adam's.")
    generator_steps: Integer = Field(default=1, ge=1, le=100, description="Steps of the generator per scored batch.")
    remembered_steps: Integer = Field(
        default=20, ge=1, le=1000, description="Batches with their released scores that the student learns from."
    )
    warm_start: Annotated[Moments | None, BeforeValidator(named)] = Field(
        default=Moments(), description="Start from released moments, or from nothing."
    )

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        num_weights(self.discriminator, schema)
        return super().plan(schema, ledger_units)

    def dimensions(self, schema: Schema) -> int:
        return 1

    def max_ranks(self, schema: Schema) -> int:
        return 1

    def vote_parameters(self) -> VoteParameters:
        return self.votes

    def build_votes(self, common: dict[str, Any]) -> VoteMechanism:
        return self.votes.build(common | {"clip": 1.0, "stochastic": False, "threshold": "none"})

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.methods.voting.pate_gan_run import ScoredStudent, StudentSchedule
        from datalens_service.methods.voting.training_run import vote

        schedule = StudentSchedule(
            discriminator=self.discriminator,
            discriminator_steps=self.discriminator_steps,
            discriminator_learning_rate=self.discriminator_learning_rate,
            generator_steps=self.generator_steps,
            remembered_steps=self.remembered_steps,
        )
        votes = plan.releases[-1].mechanism
        if not isinstance(votes, LabelScores):
            raise TypeError("the last release of a plan of pate_gan scores images")
        return vote(ScoredStudent(self, schedule, votes, records, inputs), plan, records, inputs)
