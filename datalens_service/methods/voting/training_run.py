"""The training loop of DataLens (CCS 2021, Algorithm 1).

Each step: the student proposes images, every teacher trains on its own shard and on them, the teachers vote
on how each image should move, and the student follows the noisy sum. Only that sum leaves the teachers.
"""

from typing import Any, Final

import torch

from datalens_service.checkpoint import TEACHERS, State
from datalens_service.mechanisms import Account, VoteMechanism
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.mechanisms.private_shards import Dealing, Place, PrivateShards
from datalens_service.mechanisms.votes import Directions
from datalens_service.methods.base import ExecutionOptions, Extras, Plan
from datalens_service.methods.sums.moments import MomentsRun
from datalens_service.methods.voting.shard_teachers import (
    Question,
    image_votes,
    make_teachers,
    train_teachers,
)
from datalens_service.methods.voting.teachers import Setting
from datalens_service.methods.voting.voting_method import VotingMethod
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.networks import build_network
from datalens_service.models.released import select_part
from datalens_service.models.teachers.partitions import partition_teachers
from datalens_service.models.trainer import StudentTrainer
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

CLASS_HIDDEN: Final = 128
"""Units of a class's network."""
_STUDENT: Final = "student/"


class DataLensRun:
    """A DataLens run in progress.

    Teachers are behind the wall. The student is a function of the noisy votes that come through it.
    """

    def __init__(
        self,
        parameters: VotingMethod,
        plan: Plan,
        records: PrivateRecords,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._parameters = parameters
        self._schema = records.schema
        self._randomness = randomness
        self._device = options.group.local_device(options.device)
        self._warm = MomentsRun(parameters.warm_start, plan, records) if parameters.warm_start else None
        votes = plan.releases[-1]
        if not isinstance(votes.mechanism, VoteMechanism):
            raise TypeError("the last release of a DataLens plan is a vote")
        self._votes, self._vote_steps = votes.mechanism, votes.count
        self._basis = dct_basis(self._schema, self._votes.dimensions) if parameters.vote_basis == "dct" else None
        self._shards = self._deal(records, options)
        self._student = self._trainer()

    @property
    def steps(self) -> int:
        """Releases of the warm start and votes."""
        return self._warm_steps + self._vote_steps

    @property
    def _warm_steps(self) -> int:
        return self._warm.steps if self._warm else 0

    def may_stop_before(self, step: int) -> bool:
        """Votes refine a student that exists already."""
        return step >= max(1, self._warm_steps)

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """A release of the warm start, or one vote."""
        if self._warm and step < self._warm_steps:
            self._warm.step(step, account, noise)
            if step == self._warm_steps - 1:
                self._student.load_initial(self._warm.result().tensors)
        else:
            self._vote(step, account, noise)

    def result(self) -> Generator:
        """The student after the votes so far."""
        return Generator("network", self._schema, self._student.settings(), self._student.tensors())

    def initial_generator(self) -> Generator | None:
        """The warm start, before any vote."""
        return self._warm.result() if self._warm else None

    def extras(self, epsilon: float, delta: float) -> Extras:
        """Nothing beside the student."""
        return Extras()

    def state(self) -> State:
        """Teachers and student; empty before the first vote, where replaying is cheap, and where teachers keep none."""
        teachers = self._shards.state()
        if not teachers:
            return {}
        student = {_STUDENT + name: value for name, value in self._student.state().items()}
        return {**{TEACHERS + name: value for name, value in teachers.items()}, **student}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self._shards.restore(select_part(state, TEACHERS))
        self._student.restore(select_part(state, _STUDENT))

    def _vote(self, step: int, account: Account, noise: NoiseSource) -> None:
        direction = self._ask(*self._propose("latent", step), step, account, noise)
        if self._basis is not None:
            direction = direction @ self._basis.T
        self._student.update(direction, self._parameters.image_step_size)

    def _propose(self, purpose: str, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images of the student with their labels."""
        apart = self._votes.classes_voted_apart > 1
        return self._student.propose(self._randomness.seed(purpose, number), self._votes.images, balanced=apart)

    def _ask(
        self, images: torch.Tensor, labels: torch.Tensor, step: int, account: Account, noise: NoiseSource
    ) -> Directions:
        """Let teachers learn from images, then vote on them."""
        votes, basis = self._votes, self._vote_basis()
        question = Question(images.cpu(), labels.cpu(), votes.classes_voted_apart, votes.reads_scores, basis)
        if times := self._parameters.teacher.steps_before_vote(first=step == self._warm_steps):
            self._shards.learn(train_teachers, question, times)
        with_coins = votes.model_copy(update={"seed": self._randomness.seed("signs", step)})
        return self._shards.release(with_coins, image_votes, question, step=step, account=account, noise=noise)

    def _deal(self, records: PrivateRecords, options: ExecutionOptions) -> PrivateShards:
        parameters, votes, seed = self._parameters, self._votes, self._randomness.seed
        parts = partition_teachers(parameters.num_teachers, votes.classes_voted_apart)
        dealing = Dealing(parts, votes.classes_voted_apart, parameters.teacher.batch, seed("batches"))
        place = Place(options.device, options.folder, options.group)
        setting = Setting(
            parameters.teacher, parameters.num_teachers, self._schema, seed("teachers"), self._vote_basis()
        )
        return PrivateShards(records, dealing, place, make_teachers, setting)

    def _vote_basis(self) -> torch.Tensor | None:
        return None if self._basis is None else torch.from_numpy(self._basis)

    def _trainer(self) -> StudentTrainer:
        parameters = self._parameters
        seed = self._randomness.seed("student")
        return StudentTrainer(
            build_network(self._architecture(), self._schema, seed),
            self._schema,
            self._device,
            learning_rate=parameters.resolved_student_learning_rate,
            updates=parameters.student_updates,
            averaging=parameters.student_averaging,
        )

    def _architecture(self) -> dict[str, Any]:
        """Settings of the student's network; votes in a basis can move nothing outside it."""
        parameters, warm_start = self._parameters, self._parameters.warm_start
        if warm_start is not None:
            rank = warm_start.basis_columns(self._schema)
            return {"architecture": "refined", "rank": rank, "width": parameters.refiner_width}
        if parameters.student == "deconv":
            return {"architecture": "student", "z_dim": parameters.z_dim}
        return {
            "architecture": "class_networks",
            "z_dim": parameters.z_dim,
            "frequencies": parameters.dimensions(self._schema),
            "hidden": CLASS_HIDDEN,
        }
