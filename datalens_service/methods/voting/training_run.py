"""The training loop of DataLens (CCS 2021, Algorithm 1).

Each step: the student proposes images, every teacher trains on its own shard and on them, the teachers vote
on how each image should move, and the student follows the noisy sum. Only that sum leaves the teachers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.base.checkpoint import State
from datalens_service.base.errors import CheckpointMismatch
from datalens_service.data.shard_batches import ShardBatch
from datalens_service.mechanisms import PartialGradients, VoteMechanism
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.mechanisms.private_shards import Dealing, Place, PrivateShards, Shards
from datalens_service.methods.base import Plan
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.voting.teachers import Setting
from datalens_service.methods.voting.voting_method import VotingMethod
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.networks import build_network
from datalens_service.models.released import join_parts, select_part
from datalens_service.models.teachers.base import TeacherBackend
from datalens_service.models.teachers.partitions import partition_teachers
from datalens_service.models.trainer import StudentTrainer

CLASS_HIDDEN: Final = 128
"""Hidden units of a class's network."""
_STUDENT: Final = "student/"
_START: Final = "start/"


def vote(student: VotedStudent, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
    """Ask for the sums of the warm start, if there is one, then for one vote after the other.

    Teachers are behind the wall. The student is a function of the noisy votes that come through it.
    """
    first, warm_start = plan.steps - plan.releases[-1].count, student.parameters.warm_start
    resumed = inputs.resumed
    if resumed is not None:
        student.restore(resumed.state)
    elif warm_start is not None:
        start = yield from warm_start.run(Plan(releases=plan.releases[:-1]), records, inputs)
        student.begin_at(start.generator)
    for step in range(first if resumed is None else resumed.step, plan.steps):
        images, labels = student.propose("latent", step)
        student.follow(images, labels, (yield student.ask(images, labels, step, first=step == first)), step)
    return student.outcome()


class VotedStudent:
    """A generator that follows noisy votes, and the teachers that vote on its images."""

    def __init__(
        self, parameters: VotingMethod, votes: VoteMechanism, records: PrivateRecords, inputs: RunInputs
    ) -> None:
        self.parameters, self._votes, self._schema = parameters, votes, records.schema
        self._randomness = inputs.randomness
        self._device = inputs.options.group.local_device(inputs.options.device)
        self._basis = dct_basis(self._schema, votes.dimensions) if parameters.vote_basis == "dct" else None
        self._shards = self._deal(records, inputs)
        self._student = self._trainer()
        self._start: Generator | None = None

    def begin_at(self, start: Generator) -> None:
        self._start = start
        self._student.load_initial(start.tensors)

    def propose(self, purpose: str, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw images of the student with their labels."""
        apart = self._votes.classes_voted_apart > 1
        return self._student.propose(self._randomness.seed(purpose, number), self._votes.images, balanced=apart)

    def ask(self, images: torch.Tensor, labels: torch.Tensor, step: int, *, first: bool) -> Ask:
        """Ask teachers to learn from images, then to vote on them."""
        votes, basis = self._votes, self._vote_basis()
        question = VoteQuestion(images.cpu(), labels.cpu(), votes.classes_voted_apart, votes.reads_scores, basis)
        if times := self.parameters.teacher.steps_before_vote(first=first):
            self._shards.learn(train_teachers, question, times)
        with_coins = votes.model_copy(update={"seed": self._randomness.seed("signs", step)})
        return Ask(self._shards, with_coins, image_votes, question, self.outcome, checkpoint=self.state)

    def follow(self, images: torch.Tensor, labels: torch.Tensor, released: NDArray[Any], step: int) -> None:
        """Learn from the released votes on images."""
        direction = released if self._basis is None else released @ self._basis.T
        self._student.update(direction, self.parameters.image_step_size)

    def outcome(self) -> Outcome:
        """Return the student after the votes so far."""
        student = self._student
        return Outcome(Generator("network", self._schema, student.settings(), student.tensors()), self._start)

    def state(self) -> State:
        return join_parts({_STUDENT: self._student.state(), _START: {} if self._start is None else self._start.tensors})

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`.

        Raises:
            CheckpointMismatch: It lacks the start: earlier versions kept none.
        """
        if self.parameters.warm_start is not None:
            start = select_part(state, _START)
            if not start:
                raise CheckpointMismatch("The checkpoint in this folder was written by an earlier version.")
            self._start = Generator("gaussian", self._schema, {}, start)
        self._student.restore(select_part(state, _STUDENT))

    def _deal(self, records: PrivateRecords, inputs: RunInputs) -> PrivateShards:
        parameters, votes, seed, options = self.parameters, self._votes, inputs.randomness.seed, inputs.options
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
        parameters = self.parameters
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
        """Return settings of the student's network, which moves nothing outside a basis of votes."""
        parameters, warm_start = self.parameters, self.parameters.warm_start
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


class VoteQuestion(NamedTuple):
    """Released: synthetic images, and how teachers vote on them."""

    images: Tensor
    """float32 (images, d)."""
    labels: Tensor
    """int64 (images,)."""
    class_groups: int
    """With class-pure shards the number of classes, of which there are equally many images in class order; else 1."""
    scores: bool
    """True if a vote is a number per image instead of a gradient."""
    basis: Tensor | None
    """The basis of votes, as in `Setting`."""


def make_teachers(shards: Shards, setting: Setting) -> TeacherBackend:
    return setting.teacher.build(setting, shards)


def train_teachers(teachers: TeacherBackend, batch: ShardBatch, question: VoteQuestion) -> None:
    """Take one optimiser step of every teacher; with class-pure shards on the images of its class."""
    images, labels = question.images.to(teachers.device), question.labels.to(teachers.device)
    if question.class_groups > 1:
        images = images.reshape(question.class_groups, -1, images.shape[-1])
        labels = labels.reshape(question.class_groups, -1)
    teachers.train_step(batch.images, batch.labels, images, labels)


def image_votes(teachers: TeacherBackend, question: VoteQuestion) -> Iterator[Tensor | PartialGradients]:
    """Yield blocks of gradients (teachers, images, coordinates); with class-pure shards on the images of one class.

    Where scores are asked for, blocks are (teachers, images, 1).
    """
    answers = teachers.scores if question.scores else teachers.image_gradients
    groups = question.class_groups
    group_images, group_teachers = len(question.images) // groups, teachers.num_teachers // groups
    for group in range(groups):
        rows = slice(group * group_images, (group + 1) * group_images)
        voters = slice(group * group_teachers, (group + 1) * group_teachers)
        for block in answers(question.images[rows], question.labels[rows], voters):
            votes = block if teachers.in_basis else _in_basis(block, question.basis)
            yield votes if groups == 1 else PartialGradients(votes, rows)


def _in_basis(gradients: Tensor, basis: Tensor | None) -> Tensor:
    """Project a block onto the basis, if there is one."""
    return gradients if basis is None else gradients @ basis.to(gradients.device)
