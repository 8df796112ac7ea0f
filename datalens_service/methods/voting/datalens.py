"""DataLens: teacher discriminators vote per image, the noisy vote moves a student generator.

DataLens (CCS 2021); options of our own are marked in docs/methods.md.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, final

from pydantic import BeforeValidator, Field, model_validator

from datalens_service.base.fields import Flag, Number
from datalens_service.base.wording import speak
from datalens_service.mechanisms import AnyVotes, Threshold, TopAggParameters, VoteMechanism, VoteParameters
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import Plan, named
from datalens_service.methods.facts import SMALL_NETWORKS, Facts, Levels
from datalens_service.methods.script import RunInputs, Script
from datalens_service.methods.voting.voting_method import TEACHER_SHORT_NAMES, TeacherSettings, VotingMethod


class _VoteSettings(TeacherSettings):
    """The settings of teachers, placed before those of the student as in specs of all versions."""

    votes: Annotated[AnyVotes, Field(discriminator="name"), BeforeValidator(named)] = Field(
        default=TopAggParameters(), description="DataLens' own votes, those of D2P-Fed, FetchSGD, G-PATE or GS-WGAN."
    )
    clip: Number = Field(default=1e-5, gt=0, description="Clipping bound of a gradient coordinate.")
    stochastic: Flag = Field(default=True, description="Stochastic signs, as in TopkStoSignGrad.")
    threshold: Threshold = Field(default=0.7, description="β as a fraction of num_teachers, or 'none'.")


@final
class DataLens(VotingMethod, _VoteSettings):
    """Parameters of DataLens; the defaults are the original's for MNIST at ε = 1, with a smaller teacher.

    The rest follows from the budget: with `noise_stddev` given, the number of steps; with `steps`
    given, the noise; with both, the smaller run.
    """

    short_names: ClassVar[Mapping[str, tuple[str, str]]] = {
        "top_k": ("votes", "top_k"),
        "levels": ("votes", "levels"),
        "sketch_rows": ("votes", "rows"),
        "sketch_columns": ("votes", "columns"),
        **TEACHER_SHORT_NAMES,
    }

    facts = Facts(
        title="DataLens", summary="noisy votes of teachers on generated images",
        result="generator", public_images=None, levels=Levels(1000), memory=SMALL_NETWORKS,
        measured_as="datalens", image_seconds=1e-4,
    )  # fmt: skip

    name: Literal["datalens"] = "datalens"

    @model_validator(mode="after")
    def _threshold_is_a_share(self) -> Self:
        if self.threshold != "none" and not 0 < self.threshold <= 1:
            raise ValueError(speak("⟦method.threshold⟧ must be 'none' or lie in (0, 1]."))
        return self

    def vote_parameters(self) -> VoteParameters:
        return self.votes

    def build_votes(self, common: dict[str, Any]) -> VoteMechanism:
        return self.votes.build(
            common | {"clip": self.clip, "stochastic": self.stochastic, "threshold": self.threshold}
        )

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.methods.voting.training_run import VotedStudent, vote

        votes = plan.releases[-1].mechanism
        if not isinstance(votes, VoteMechanism):
            raise TypeError("the last release of a DataLens plan is a vote")
        return vote(VotedStudent(self, votes, records, inputs), plan, records, inputs)
