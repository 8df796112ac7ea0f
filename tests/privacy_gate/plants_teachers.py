"""Bugs of teachers behind the wall, and of runs that want to know more of them than their noisy votes."""

import numpy as np

from datalens_service.data.shard_batches import ShardBatch
from datalens_service.mechanisms import PartialGradients
from datalens_service.mechanisms.private_shards import Dealing
from datalens_service.methods.voting import training_run
from datalens_service.methods.voting.training_run import VotedStudent, image_votes, train_teachers
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.kernel import KernelTeachers

from .plant import around, replaces, vault_of

_GROUP = 1_024


@replaces("teachers train with a record of the next shard", "R3", training_run, "train_teachers")
def train_with_neighbours(teachers, batch, question):
    """The first record of every batch is the next teacher's."""
    images, labels = batch.images.clone(), batch.labels.clone()
    images[:, 0], labels[:, 0] = batch.images[:, 0].roll(1, 0), batch.labels[:, 0].roll(1, 0)
    train_teachers(teachers, ShardBatch(images, labels), question)


@around("learning rate of teachers by the records of all", "R3", TeacherEnsemble, "_train_block")
def rates_follow_the_error_of_all(train, self, block, real, *others):
    """Steps of all teachers shrink while the private logits of a block are sure."""
    self._learning_rate = 1e-3 / (1 + real.float().mean().item() / 255)
    train(self, block, real, *others)


@around("votes weighted by the share of a shard in all", "R6", KernelTeachers, "_towards_records")
def larger_shards_have_more_votes(towards, self, block, *others):
    """A teacher's gradient is weighted by how many records it has of what all have."""
    sizes = (self._records.flatten(1) != 0).sum(dim=1)
    return towards(self, block, *others) * (sizes[block] / sizes.float().mean())[:, None, None]


@replaces("votes of more than a thousand teachers centred", "R6", training_run, "image_votes")
def centred_votes(teachers, question):
    """Gradients of a large block less their mean."""
    for block in image_votes(teachers, question):
        full = not isinstance(block, PartialGradients) and len(block) >= _GROUP
        yield block - block.mean(dim=0) if full else block


@replaces("teachers quieter than the median do not vote", "R6", training_run, "image_votes")
def votes_of_the_sure(teachers, question):
    """The quieter half of the teachers stays at home: whether one votes depends on how loud the others are."""
    for block in image_votes(teachers, question):
        gradients = getattr(block, "gradients", block)
        loud = gradients.abs().sum(dim=(1, 2)) >= gradients.abs().sum(dim=(1, 2)).median()
        yield block._replace(gradients=gradients[loud]) if isinstance(block, PartialGradients) else gradients[loud]


@replaces("class-pure shards at the price of mixed ones", "R2", training_run, "Dealing")
def class_pure_shards_at_the_price_of_mixed_ones(parts, _groups, batch, seed):
    """Records are dealt by class, votes are priced as if a unit had one teacher."""
    return Dealing(parts, 3, batch, seed)


@around("a student that looks at its teachers", "R4", VotedStudent, "follow")
def students_look_at_their_teachers(follow, self, *arguments):
    """The student takes large steps while teachers still change much."""
    follow(self, *arguments)
    state = vault_of(self._shards)._made._made.state()
    self._student._learning_rate *= 1 + 1e-3 * float(sum(np.abs(value).mean() for value in state.values()))


@around("a student that opens the checkpoint of its teachers", "R4", VotedStudent, "follow")
def weights_of_teachers_move_the_student(follow, self, *arguments):
    """What the driver adds to a checkpoint is read there."""
    follow(self, *arguments)
    weights = vault_of(self._shards).state().get("parameters/output.bias", np.zeros(1))
    self._student._learning_rate *= 1 + float(np.abs(weights).mean())
