"""Bugs of teachers behind the wall, and of runs that want to know more of them than their noisy votes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from datalens_service.checkpoint import TEACHERS, Sealed
from datalens_service.data.shard_batches import ShardBatch
from datalens_service.mechanisms import PartialGradients
from datalens_service.mechanisms.private_shards import Dealing
from datalens_service.methods.voting import training_run
from datalens_service.methods.voting.shard_teachers import Question, image_votes, train_teachers
from datalens_service.methods.voting.training_run import DataLensRun
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.kernel import KernelTeachers

from .plant import Plant, replaced

_GROUP = 1_024


def train_with_neighbours(teachers: Any, batch: ShardBatch, question: Question) -> None:
    """The first record of every batch is the next teacher's."""
    images, labels = batch.images.clone(), batch.labels.clone()
    images[:, 0], labels[:, 0] = batch.images[:, 0].roll(1, 0), batch.labels[:, 0].roll(1, 0)
    train_teachers(teachers, ShardBatch(images, labels), question)


def rates_follow_the_error_of_all(patch: pytest.MonkeyPatch) -> None:
    """Steps of all teachers shrink while the private logits of a block are sure."""
    train = TeacherEnsemble._train_block

    def scheduled(self: TeacherEnsemble, block: slice, real: torch.Tensor, *others: Any) -> None:
        self._learning_rate = 1e-3 / (1 + real.float().mean().item() / 255)
        train(self, block, real, *others)

    patch.setattr(TeacherEnsemble, "_train_block", scheduled)


def larger_shards_have_more_votes(patch: pytest.MonkeyPatch) -> None:
    """A teacher's gradient is weighted by how many records it has of what all have."""
    towards = KernelTeachers._towards_records

    def weighted(self: KernelTeachers, block: slice, *others: Any) -> torch.Tensor:
        sizes = (self._records.flatten(1) != 0).sum(dim=1)
        return towards(self, block, *others) * (sizes[block] / sizes.float().mean())[:, None, None]

    patch.setattr(KernelTeachers, "_towards_records", weighted)


def centred_votes(teachers: Any, question: Question) -> Iterator[Any]:
    """Gradients of a large block less their mean."""
    for block in image_votes(teachers, question):
        full = not isinstance(block, PartialGradients) and len(block) >= _GROUP
        yield block - block.mean(dim=0) if full else block


def votes_of_the_sure(teachers: Any, question: Question) -> Iterator[Any]:
    """The quieter half of the teachers stays at home: whether one votes depends on how loud the others are."""
    for block in image_votes(teachers, question):
        gradients = getattr(block, "gradients", block)
        loud = gradients.abs().sum(dim=(1, 2)) >= gradients.abs().sum(dim=(1, 2)).median()
        yield block._replace(gradients=gradients[loud]) if isinstance(block, PartialGradients) else gradients[loud]


def class_pure_shards_at_the_price_of_mixed_ones(patch: pytest.MonkeyPatch) -> None:
    """Records are dealt by class, votes are priced as if a unit had one teacher."""

    def dealt(parts: list[range], _groups: int, batch: int, seed: int) -> Dealing:
        return Dealing(parts, 3, batch, seed)

    patch.setattr(training_run, "Dealing", dealt)


def students_look_at_their_teachers(patch: pytest.MonkeyPatch) -> None:
    """The student takes large steps while teachers still change much."""
    vote = DataLensRun._vote

    def watched(self: DataLensRun, *arguments: Any) -> None:
        vote(self, *arguments)
        state = self._shards._vault.teachers().state()
        self._student._learning_rate *= 1 + 1e-3 * float(sum(np.abs(value).mean() for value in state.values()))

    patch.setattr(DataLensRun, "_vote", watched)


def weights_of_teachers_move_the_student(patch: pytest.MonkeyPatch) -> None:
    """What is sealed is opened on the way to the checkpoint."""
    vote = DataLensRun._vote

    def watched(self: DataLensRun, *arguments: Any) -> None:
        vote(self, *arguments)
        sealed = self.state().get(f"{TEACHERS}parameters/output.bias")
        weights = sealed._private if isinstance(sealed, Sealed) else np.zeros(1)
        self._student._learning_rate *= 1 + float(np.abs(weights).mean())

    patch.setattr(DataLensRun, "_vote", watched)


PLANTS = (
    Plant(
        "teachers train with a record of the next shard",
        "R3",
        replaced(training_run, "train_teachers", train_with_neighbours),
    ),
    Plant("learning rate of teachers by the records of all", "R3", rates_follow_the_error_of_all),
    Plant("votes weighted by the share of a shard in all", "R6", larger_shards_have_more_votes),
    Plant("votes of more than a thousand teachers centred", "R6", replaced(training_run, "image_votes", centred_votes)),
    Plant(
        "teachers quieter than the median do not vote", "R6", replaced(training_run, "image_votes", votes_of_the_sure)
    ),
    Plant("class-pure shards at the price of mixed ones", "R2", class_pure_shards_at_the_price_of_mixed_ones),
    Plant("a student that looks at its teachers", "R4", students_look_at_their_teachers),
    Plant("a student that opens the checkpoint of its teachers", "R4", weights_of_teachers_move_the_student),
)
