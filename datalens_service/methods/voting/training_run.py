"""The training loop of DataLens (CCS 2021, Algorithm 1).

Each step: the student proposes images, every teacher trains on its own shard and on them, the teachers vote
on how each image should move, and the student follows the noisy sum. Only that sum leaves the teachers.
"""

from typing import Any, Final

import numpy as np

from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import Account, VoteMechanism
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import ExecutionOptions, Extras, Plan
from datalens_service.methods.sums.moments import MomentsRun
from datalens_service.methods.voting.distributed import LeaderTeacherPool
from datalens_service.methods.voting.teacher_pool import Proposal
from datalens_service.methods.voting.voting_method import VotingMethod
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.networks.architectures import build_network
from datalens_service.models.trainer import StudentTrainer
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

State = dict[str, np.ndarray]

CLASS_HIDDEN: Final = 128
"""Units of a class's network."""


class DataLensRun:
    """A DataLens run in progress.

    Private: teachers, shards and gradients. Released: what the mechanism's `release` hands out, hence the
    student, which sees nothing else.
    """

    def __init__(
        self,
        parameters: VotingMethod,
        plan: Plan,
        dataset: Dataset,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._parameters = parameters
        self._schema = dataset.schema
        self._randomness = randomness
        self._device = options.group.local_device(options.device)
        self._warm = (
            MomentsRun(parameters.warm_start, plan, PrivateRecords.from_dataset(dataset))
            if parameters.warm_start
            else None
        )
        votes = plan.releases[-1]
        if not isinstance(votes.mechanism, VoteMechanism):
            raise TypeError("the last release of a DataLens plan is a vote")
        self._votes, self._vote_steps = votes.mechanism, votes.count
        self._pool = LeaderTeacherPool(parameters, self._votes, dataset, randomness, options)
        self._student = self._trainer()
        self._basis = dct_basis(self._schema, self._votes.dimensions) if parameters.vote_basis == "dct" else None

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
        teachers = self._pool.state()
        if not teachers:
            return {}
        parts = {"teachers": teachers, "student": self._student.state()}
        return {f"{part}/{name}": value for part, named in parts.items() for name, value in named.items()}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self._pool.restore(_part(state, "teachers/"))
        self._student.restore(_part(state, "student/"))

    def _vote(self, step: int, account: Account, noise: NoiseSource) -> None:
        apart = self._votes.classes_voted_apart > 1
        proposed = self._student.propose(self._randomness.seed("latent", step), self._votes.images, balanced=apart)
        proposal = Proposal(*proposed)
        self._pool.train(proposal, first=step == self._warm_steps)
        mechanism = self._pool.mechanism(step)
        direction = mechanism.release(
            lambda: self._pool.request_votes(step, proposal), step=step, account=account, noise=noise
        )
        if self._basis is not None:
            direction = direction @ self._basis.T
        self._student.update(direction, self._parameters.image_step_size)

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


def _part(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
