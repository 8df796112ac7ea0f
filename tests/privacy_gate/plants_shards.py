"""Bugs in partition and isolation."""

from typing import Any

import numpy as np
import pytest
import torch

from datalens_service.data import dataset, partition, privacy_units, shard_batches
from datalens_service.data.dataset import Split
from datalens_service.models.adam import AdamState
from datalens_service.models.teachers import ensemble
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.networks import Dense

from .plant import Plant


def shards_wrap_around(patch: pytest.MonkeyPatch) -> None:
    """Small shards are filled up with records of the next one."""
    members = partition.members

    def filled(assigned: np.ndarray, num_shards: int) -> list[np.ndarray]:
        found = members(assigned, num_shards)
        smallest = min(len(rows) for rows in found)
        return [
            np.append(rows, found[(index + 1) % num_shards][:1]) if len(rows) == smallest else rows
            for index, rows in enumerate(found)
        ]

    patch.setattr(partition, "members", filled)


def shards_are_cut_by_position(patch: pytest.MonkeyPatch) -> None:
    """Equal pieces of the upload: their bounds depend on n and on the order."""

    def cut(key: bytes, unit_ids: np.ndarray, num_shards: int, *_: Any) -> np.ndarray:
        return np.arange(len(unit_ids)) * num_shards // len(unit_ids)

    patch.setattr(partition, "assign_shards", cut)


def shards_are_balanced_between_classes(patch: pytest.MonkeyPatch) -> None:
    """Dealt in turn per class: another record's label moves all that follow it."""
    assign = partition.assign_shards

    def dealt(key: bytes, units: np.ndarray, num_shards: int, labels: Any = None, num_classes: int = 1) -> np.ndarray:
        if labels is None:
            return assign(key, units, num_shards)
        per_class = num_shards // num_classes
        turn = np.array([(labels[:index] == label).sum() for index, label in enumerate(labels)])
        return np.asarray(labels * per_class + turn % per_class)

    patch.setattr(partition, "assign_shards", dealt)


def shards_depend_on_how_many_there_are(patch: pytest.MonkeyPatch) -> None:
    """The number of units enters the hash."""
    assign = partition.assign_shards

    def counted(key: bytes, unit_ids: np.ndarray, *others: Any) -> np.ndarray:
        return assign(key + len(unit_ids).to_bytes(4, "big"), unit_ids, *others)

    patch.setattr(partition, "assign_shards", counted)


def records_of_a_unit_are_dealt_apart(patch: pytest.MonkeyPatch) -> None:
    """The position of a record stands for its unit, although units were declared."""
    patch.setattr(Split, "unit_ids", property(lambda self: np.arange(len(self), dtype=np.int64)))
    patch.setattr(dataset, "check_units", lambda schema, split: None)


def units_are_numbered(patch: pytest.MonkeyPatch) -> None:
    """A unit is known by its rank among the names: leaving one out renumbers those behind it."""

    def ranked(names: Any) -> np.ndarray:
        return np.unique([str(name) for name in names], return_inverse=True)[1].astype(np.int64)

    patch.setattr(privacy_units, "identities", ranked)


def optimiser_is_shared(patch: pytest.MonkeyPatch) -> None:
    """Blocks of teachers take turns in one slot whose Adam moments stay there."""
    block = AdamState.block

    def shared(self: AdamState, rows: slice) -> AdamState:
        slot = block(self, slice(0, rows.stop - rows.start))
        return block(self, rows)._replace(first=slot.first, second=slot.second)

    patch.setattr(AdamState, "block", shared)


def normalisation_is_shared(patch: pytest.MonkeyPatch) -> None:
    """Features are normalised over all teachers of a block."""
    rest = Dense.rest

    def normalised(self: Dense, parameters: Any, features: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return rest(self, parameters, features - features.mean(dim=(0, -1), keepdim=True), classes)

    patch.setattr(Dense, "rest", normalised)


def gradients_are_clipped_together(patch: pytest.MonkeyPatch) -> None:
    """A global norm over the stacked gradients, as an optimiser's clipping helper computes it."""
    adam_step = ensemble.adam_step

    def clipped(adam_state: AdamState, gradients: dict[str, torch.Tensor], *others: Any) -> None:
        norm = torch.sqrt(sum(value.square().sum() for value in gradients.values()))
        adam_step(adam_state, {name: value / norm.clamp_min(1e-3) for name, value in gradients.items()}, *others)

    patch.setattr(ensemble, "adam_step", clipped)


def batches_reach_into_the_next_shard(patch: pytest.MonkeyPatch) -> None:
    """A batch that starts near the end of a shard goes on behind it."""

    def draw(self: shard_batches.ShardSampler, step: int) -> torch.Tensor:
        numbers = np.random.default_rng([self._seed, step]).random(len(self._sizes))
        first = (torch.from_numpy(numbers) * self._sizes).to(torch.int64)
        places = (self._starts + first)[:, None] + torch.arange(self._batch_size)
        return places.clamp_max(len(self._images) - 1)

    patch.setattr(shard_batches.ShardSampler, "_draw", draw)


def shards_are_shuffled_with_one_stream(patch: pytest.MonkeyPatch) -> None:
    """Shards are shuffled one after the other: an earlier shard's length moves all later ones."""

    def shuffled(found: Any, held: Any, seed: int) -> np.ndarray:
        stream = np.random.default_rng(seed)
        return np.concatenate([*(stream.permutation(rows) for rows in found), np.zeros(1, dtype=np.int64)])

    patch.setattr(shard_batches, "_shuffled", shuffled)


def row_numbers_order_the_batches(patch: pytest.MonkeyPatch) -> None:
    """Each row has a random number by its position in the upload: a record less shifts all that follow."""

    def shuffled(found: Any, held: Any, seed: int) -> np.ndarray:
        keys = np.random.default_rng(seed).random(1 + max((rows.max(initial=0) for rows in found), default=0))
        return np.concatenate([*(rows[np.argsort(keys[rows])] for rows in found), np.zeros(1, dtype=np.int64)])

    patch.setattr(shard_batches, "_shuffled", shuffled)


def empty_teachers_vote(patch: pytest.MonkeyPatch) -> None:
    """A teacher without records trains on a default image and votes."""
    init = TeacherEnsemble.__init__

    def started(self: TeacherEnsemble, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **{**named, "active": None})

    patch.setattr(TeacherEnsemble, "__init__", started)


PLANTS = (
    Plant("partition wraps around and deals records twice", "B5", shards_wrap_around),
    Plant("shards cut by position", "B4", shards_are_cut_by_position),
    Plant("shards move when another record's label changes", "B4", shards_are_balanced_between_classes),
    Plant("shards depend on the number of records", "B4", shards_depend_on_how_many_there_are),
    Plant("records of a unit dealt apart", "B6", records_of_a_unit_are_dealt_apart),
    Plant("units numbered in their order", "R1", units_are_numbered),
    Plant("optimiser state shared across teachers", "B3", optimiser_is_shared),
    Plant("normalisation shared across teachers", "B17", normalisation_is_shared),
    Plant("gradients of teachers clipped together", "B3", gradients_are_clipped_together),
    Plant("batches reach into the next shard", "R2", batches_reach_into_the_next_shard),
    Plant("shards shuffled with one stream of random numbers", "R1", shards_are_shuffled_with_one_stream),
    Plant("row numbers order the batches", "R1", row_numbers_order_the_batches),
    Plant("teachers without records vote", "R5", empty_teachers_vote),
)
