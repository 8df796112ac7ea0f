"""Bugs in partition and isolation."""

import numpy as np
import torch

from datalens_service.data import dataset, partition, privacy_units, shard_batches
from datalens_service.data.dataset import Split
from datalens_service.models.adam import AdamState
from datalens_service.models.teachers import ensemble
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.networks import Dense

from .plant import around, plant, replaces


@around("partition wraps around and deals records twice", "B5", partition, "members")
def shards_wrap_around(members, assigned, num_shards):
    """Small shards are filled up with records of the next one."""
    found = members(assigned, num_shards)
    smallest = min(len(rows) for rows in found)
    return [
        np.append(rows, found[(index + 1) % num_shards][:1]) if len(rows) == smallest else rows
        for index, rows in enumerate(found)
    ]


@replaces("shards cut by position", "B4", partition, "assign_shards")
def shards_are_cut_by_position(key, unit_ids, num_shards, *_):
    """Equal pieces of the upload: their bounds depend on n and on the order."""
    return np.arange(len(unit_ids)) * num_shards // len(unit_ids)


@around("shards move when another record's label changes", "B4", partition, "assign_shards")
def shards_are_balanced_between_classes(assign, key, units, num_shards, labels=None, num_classes=1):
    """Dealt in turn per class: another record's label moves all that follow it."""
    if labels is None:
        return assign(key, units, num_shards)
    per_class = num_shards // num_classes
    turn = np.array([(labels[:index] == label).sum() for index, label in enumerate(labels)])
    return np.asarray(labels * per_class + turn % per_class)


@around("shards depend on the number of records", "B4", partition, "assign_shards")
def shards_depend_on_how_many_there_are(assign, key, unit_ids, *others):
    """The number of units enters the hash."""
    return assign(key + len(unit_ids).to_bytes(4, "big"), unit_ids, *others)


@plant("records of a unit dealt apart", "B6")
def records_of_a_unit_are_dealt_apart(patch):
    """The position of a record stands for its unit, although units were declared."""
    patch.setattr(Split, "unit_ids", property(lambda self: np.arange(len(self.labels), dtype=np.int64)))
    patch.setattr(dataset, "check_units", lambda schema, split: None)


@replaces("units numbered in their order", "R1", privacy_units, "identities")
def units_are_numbered(names):
    """A unit is known by its rank among the names: leaving one out renumbers those behind it."""
    return np.unique([str(name) for name in names], return_inverse=True)[1].astype(np.int64)


@around("optimiser state shared across teachers", "B3", AdamState, "block")
def optimiser_is_shared(block, self, rows):
    """Blocks of teachers take turns in one slot whose Adam moments stay there."""
    slot = block(self, slice(0, rows.stop - rows.start))
    return block(self, rows)._replace(first=slot.first, second=slot.second)


@around("normalisation shared across teachers", "B17", Dense, "rest")
def normalisation_is_shared(rest, self, parameters, features, classes):
    """Features are normalised over all teachers of a block."""
    return rest(self, parameters, features - features.mean(dim=(0, -1), keepdim=True), classes)


@around("gradients of teachers clipped together", "B3", ensemble, "adam_step")
def gradients_are_clipped_together(adam_step, adam_state, gradients, *others):
    """A global norm over the stacked gradients, as an optimiser's clipping helper computes it."""
    norm = torch.sqrt(sum(value.square().sum() for value in gradients.values()))
    adam_step(adam_state, {name: value / norm.clamp_min(1e-3) for name, value in gradients.items()}, *others)


@replaces("batches reach into the next shard", "R2", shard_batches.ShardSampler, "_draw")
def batches_reach_into_the_next_shard(self, step):
    """A batch that starts near the end of a shard goes on behind it."""
    numbers = np.random.default_rng([self._seed, step]).random(len(self._sizes))
    first = (torch.from_numpy(numbers) * self._sizes).to(torch.int64)
    places = (self._starts + first)[:, None] + torch.arange(self._batch_size)
    return places.clamp_max(len(self._images) - 1)


@replaces("shards shuffled with one stream of random numbers", "R1", shard_batches, "_shuffled")
def shards_are_shuffled_with_one_stream(found, held, seed):
    """Shards are shuffled one after the other: an earlier shard's length moves all later ones."""
    stream = np.random.default_rng(seed)
    return np.concatenate([*(stream.permutation(rows) for rows in found), np.zeros(1, dtype=np.int64)])


@replaces("row numbers order the batches", "R1", shard_batches, "_shuffled")
def row_numbers_order_the_batches(found, held, seed):
    """Each row has a random number by its position in the upload: a record less shifts all that follow."""
    keys = np.random.default_rng(seed).random(1 + max((rows.max(initial=0) for rows in found), default=0))
    return np.concatenate([*(rows[np.argsort(keys[rows])] for rows in found), np.zeros(1, dtype=np.int64)])


@around("teachers without records vote", "R5", TeacherEnsemble, "__init__")
def empty_teachers_vote(init, self, *arguments, **named):
    """A teacher without records trains on a default image and votes."""
    init(self, *arguments, **{**named, "active": None})
