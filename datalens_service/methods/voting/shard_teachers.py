"""The work of the teachers of shards: how they are made, learn and vote. The wall calls these functions."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from datalens_service.data.shard_batches import ShardBatch
from datalens_service.mechanisms import PartialGradients
from datalens_service.mechanisms.private_shards import Shards
from datalens_service.methods.voting.teachers import Setting
from datalens_service.models.teachers.base import TeacherBackend


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
