"""The voting loop of DataLens (algorithms.md, section 1).

Each step: the student proposes images, every teacher trains on its own shard and on them, the teachers vote
on how each image should move, and the student follows the noisy sum. Only that sum leaves the teachers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from datalens_service.data.dataset import Dataset, Labels
from datalens_service.data.partition import assign_shards, members
from datalens_service.mechanisms import Account, VoteMechanism
from datalens_service.methods.base import Plan
from datalens_service.methods.moments import MomentsLoop
from datalens_service.models.basis import dct_basis
from datalens_service.models.generator import Generator
from datalens_service.models.shards import ShardSampler
from datalens_service.models.student import network
from datalens_service.models.teachers import TeacherEnsemble
from datalens_service.models.trainer import StudentTrainer
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.settings import Settings

if TYPE_CHECKING:
    from datalens_service.methods.teacher_gradients import DataLens

State = dict[str, np.ndarray]


class TeacherLoop:
    """A DataLens run in progress.

    Private: teachers, shards and gradients. Released: what the mechanism's `release` hands out, hence the
    student, which sees nothing else.
    """

    def __init__(
        self, parameters: DataLens, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, device: str
    ) -> None:
        self._parameters = parameters
        self._schema = dataset.schema
        self._randomness = randomness
        self._device = device
        self._warm = MomentsLoop(parameters.warm_start, plan, dataset) if parameters.warm_start else None
        votes = plan.releases[-1]
        if not isinstance(votes.mechanism, VoteMechanism):
            raise TypeError("the last release of a DataLens plan is a vote")
        self._votes, self._vote_steps = votes.mechanism, votes.count
        self._groups = self._votes.classes_voted_apart
        self._sampler = self._shards(dataset)
        self._teachers = TeacherEnsemble(
            parameters.teacher,
            parameters.num_teachers,
            dataset.schema,
            device,
            randomness.seed("teachers"),
            learning_rate=parameters.teacher_learning_rate,
            active=self._sampler.active,
            folder=_folder(),
        )
        self._student = self._trainer()
        self._basis = dct_basis(self._schema, self._votes.dimensions) if parameters.vote_basis == "dct" else None
        self._teacher_steps = 0

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
                self._student.begin(self._warm.generator().tensors)
        else:
            self._vote(step, account, noise)

    def generator(self) -> Generator:
        """The student after the votes so far."""
        return Generator("network", self._schema, self._student.settings(), self._student.tensors())

    def start_generator(self) -> Generator | None:
        """The warm start, before any vote."""
        return self._warm.generator() if self._warm else None

    def state(self) -> State:
        """Teachers and student; empty before the first vote, where replaying is cheap.

        Also empty when the teachers exceed their limit of memory: a checkpoint would be as large as they are, and
        a resumed job trains them again while it replays the stored sums from the start.
        """
        if not self._teacher_steps or self._teachers.on_disk:
            return {}
        counter = {"teacher_steps": np.array(self._teacher_steps)}
        teachers = {f"teachers/{name}": value for name, value in self._teachers.state().items()}
        return counter | teachers | {f"student/{name}": value for name, value in self._student.state().items()}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self._teacher_steps = int(state["teacher_steps"])
        self._teachers.restore(_part(state, "teachers/"))
        self._student.restore(_part(state, "student/"))

    def _vote(self, step: int, account: Account, noise: NoiseSource) -> None:
        images, labels = self._student.propose(
            self._randomness.seed("latent", step), self._votes.images, balanced=self._groups > 1
        )
        self._train_teachers(images, labels, first=step == self._warm_steps)
        mechanism = self._votes.model_copy(update={"seed": self._randomness.seed("signs", step)})
        direction = mechanism.release(lambda: self._gradients(images, labels), step=step, account=account, noise=noise)
        if self._basis is not None:
            direction = direction @ self._basis.T
        self._student.update(direction, self._parameters.image_step_size)

    def _train_teachers(self, images: torch.Tensor, labels: torch.Tensor, *, first: bool) -> None:
        repeats = self._parameters.teacher_warmup_steps if first else self._parameters.teacher_steps
        if self._groups > 1:
            images = images.reshape(self._groups, -1, images.shape[-1])
            labels = labels.reshape(self._groups, -1)
        for _ in range(repeats):
            batch = self._sampler.batch(self._teacher_steps)
            self._teachers.train_step(batch.images, batch.labels, images, labels)
            self._teacher_steps += 1

    def _gradients(self, images: torch.Tensor, labels: torch.Tensor) -> Iterator[torch.Tensor]:
        """Blocks (teachers, images, coordinates); with class-pure shards 0 on images of other classes."""
        own = len(images) // self._groups
        run = self._parameters.num_teachers // self._groups
        for group in range(self._groups):
            rows = slice(group * own, (group + 1) * own)
            teachers = slice(group * run, (group + 1) * run)
            for block in self._teachers.image_gradients(images[rows], labels[rows], teachers):
                votes = block if self._basis is None else block @ torch.from_numpy(self._basis).to(block.device)
                if self._groups == 1:
                    yield votes
                else:
                    padded = votes.new_zeros(len(votes), len(images), votes.shape[-1])
                    padded[:, rows] = votes
                    yield padded

    def _shards(self, dataset: Dataset) -> ShardSampler:
        apart: Labels | None = dataset.train.labels if self._groups > 1 else None
        count = self._parameters.num_teachers
        shards = assign_shards(dataset.partition_key, dataset.train.unit_ids, count, apart, self._groups)
        return ShardSampler(
            dataset.train.images,
            dataset.train.labels,
            members(shards, count),
            self._parameters.teacher_batch,
            self._randomness.seed("batches"),
            self._device,
        )

    def _trainer(self) -> StudentTrainer:
        parameters, warm_start = self._parameters, self._parameters.warm_start
        seed = self._randomness.seed("student")
        if warm_start is None:
            student = network({"architecture": "student", "z_dim": parameters.z_dim}, self._schema, seed)
        else:
            rank = min(warm_start.subspace_dimensions, self._schema.dimensions)
            settings = {"architecture": "refined", "rank": rank, "width": parameters.refiner_width}
            student = network(settings, self._schema, seed)
        return StudentTrainer(
            student,
            self._schema,
            self._device,
            learning_rate=parameters.resolved_student_learning_rate,
            updates=parameters.student_updates,
            averaging=parameters.student_averaging,
        )


def _part(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _folder() -> Path | None:
    """For teachers beyond the limit of memory: the service's disk, where the system's folder may be memory itself."""
    folder = Settings().data_dir
    return folder if folder.is_dir() else None
