"""Detectors on partition and isolation: one unit moves one shard, one shard moves one teacher."""

import itertools
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from datalens_service.data import partition
from datalens_service.data import privacy_units as unit_names
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.data.shard_batches import ShardSampler
from datalens_service.mechanisms import private_shards
from datalens_service.methods import DataLens
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.networks import Dense
from datalens_service.privacy.budget import UnchargedAccount
from tests.stepped_runs import SteppedRun

from .alarm import expect

_UNITS, _SHARDS, _CLASSES = 400, 24, 4
_TEACHERS, _RECORDS, _SIDE, _STEPS = 7, 42, 6, 3

Contents = list[tuple[int, ...]]


class Held(NamedTuple):
    """Records, and which rows each shard has."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    shards: list[NDArray[np.int64]]


def units_are_dealt_once(rng: np.random.Generator) -> None:
    """R2: every unit in exactly one shard, however small its class (B5, B6)."""
    labels = _rare_classes(rng)
    for own_labels in (None, labels):
        shards = _contents(rng.bytes(32), np.arange(_UNITS), own_labels)
        dealt = sorted(unit for shard in shards for unit in shard)
        expect(dealt == list(range(_UNITS)), "every unit is in exactly one shard")


def emptied_units_change_one_shard(rng: np.random.Generator) -> None:
    """R1: a unit's shard does not depend on who else is there (B4)."""
    labels, key = _rare_classes(rng), rng.bytes(32)
    for own_labels in (None, labels):
        before = _contents(key, np.arange(_UNITS), own_labels)
        for unit in rng.choice(_UNITS, size=5, replace=False):
            kept = np.delete(np.arange(_UNITS), unit)
            after = _contents(key, kept, None if own_labels is None else own_labels[kept])
            expect(_changed(before, after) == 1, "emptying a unit changes exactly one shard")
        order = rng.permutation(_UNITS)
        reordered = _contents(key, order, None if own_labels is None else own_labels[order])
        same = [sorted(shard) for shard in before] == [sorted(shard) for shard in reordered]
        expect(same, "the order of an upload does not matter")


def relabelled_units_move_alone(rng: np.random.Generator) -> None:
    """R1: class-pure shards: a changed label moves its own unit, from one shard to one other (B4)."""
    labels, key = _rare_classes(rng), rng.bytes(32)
    before = _contents(key, np.arange(_UNITS), labels)
    for unit in rng.choice(_UNITS, size=8, replace=False):
        other = labels.copy()
        other[unit] = (labels[unit] + 1) % _CLASSES
        after = _contents(key, np.arange(_UNITS), other)
        expect(_changed(before, after) == 2, "relabelling a unit changes two class-pure shards")


def units_of_several_records_stay_together(rng: np.random.Generator) -> None:
    """R2: a run deals all records of a unit to one shard; with class-pure shards, to one for each of its classes."""
    names, labels = rng.integers(0, _UNITS // 4, size=_UNITS), _rare_classes(rng)
    units = unit_names.identities(names)
    expect(
        np.array_equal(unit_names.identities(names[names > 9]), units[names > 9]), "a unit's identity is its own name's"
    )
    for kind in ("mixed", "class_pure"):
        shards = _dealt_by_a_run(units, labels, kind)
        for unit in np.unique(units):
            reached = sum(unit in units[rows] for rows in shards)
            allowed = len(np.unique(labels[units == unit])) if kind == "class_pure" else 1
            expect(reached == allowed, "a unit reaches the shards it is charged for, and no other")


def teachers_do_not_see_each_other(rng: np.random.Generator) -> None:
    """R3: a changed record leaves every bit of all other teachers as it was (B3, B17)."""
    images = rng.integers(0, 256, (_RECORDS, _SIDE, _SIDE, 1)).astype(np.uint8)
    labels = rng.integers(0, _CLASSES, _RECORDS)
    owners = rng.permutation(np.arange(_RECORDS) % _TEACHERS)
    held = Held(images, labels, partition.members(owners, _TEACHERS))
    before = _trained(held)
    for teacher, change in itertools.product(range(_TEACHERS), (_other_image, _other_label, _emptied)):
        after = _trained(change(held, int(rng.choice(np.flatnonzero(owners == teacher)))))
        moved = {number: _what_moved(before, after, number) for number in range(_TEACHERS)}
        expect(moved.pop(teacher), "the check sees the teacher whose record changed")
        said = sorted({name for names in moved.values() for name in names})
        expect(not said, f"a record moves its own teacher only, not the {', '.join(said)} of others")


def teachers_without_records_say_nothing(rng: np.random.Generator) -> None:
    """An empty shard votes zero, so that emptying the last record of a shard is covered as well."""
    images = rng.integers(0, 256, (_RECORDS, _SIDE, _SIDE, 1)).astype(np.uint8)
    owners = np.arange(_RECORDS) % (_TEACHERS - 1)
    held = Held(images, np.zeros(_RECORDS, dtype=np.int64), partition.members(owners, _TEACHERS))
    trained = _trained(held)
    expect(not trained["gradients"][-1].any(), "a teacher without records has gradient zero")


def _dealt_by_a_run(units: NDArray[np.int64], labels: NDArray[np.int64], kind: str) -> list[NDArray[np.int64]]:
    """Rows of every shard, as a DataLens run on records of these units deals them."""
    _, counts = np.unique(units, return_counts=True)
    schema = Schema(
        channels=1, height=_SIDE, width=_SIDE, class_names=("a", "b", "c", "d"), num_units=len(counts),
        unit="patient", records_per_unit=int(counts.max()), classes_per_unit=_CLASSES,
    )  # fmt: skip
    images = np.zeros((len(units), _SIDE, _SIDE, 1), dtype=np.uint8)
    method = DataLens(teacher="dense", num_teachers=_SHARDS, images_per_step=_CLASSES, top_k=4, shards=kind)
    plan = method.plan(schema, 10**15)
    with mock.patch.object(private_shards, "ShardSampler", wraps=ShardSampler) as sampler:
        dataset = Dataset(schema, Split(images, labels, units), None, b"k" * 32)
        SteppedRun(method, plan, dataset).step(0, UnchargedAccount())
    rows: list[NDArray[np.int64]] = sampler.call_args.args[2]
    return rows


def removed_units_change_one_teachers_batches(rng: np.random.Generator) -> None:
    """R1: a unit's rows are cut out of the upload, so that all later ones move up; other teachers do not notice."""
    units = unit_names.identities(np.sort(rng.integers(0, _UNITS // 4, size=_UNITS)))
    images = rng.integers(0, 256, (_UNITS, _SIDE, _SIDE, 1)).astype(np.uint8)
    before = _batches(images, units)
    for unit in rng.choice(units, size=3):
        for kept in (units != unit, ~((units == unit) & (np.cumsum(units == unit) > 1))):
            after = _batches(images[kept], units[kept])
            changed = sum(first.tobytes() != second.tobytes() for first, second in zip(before, after, strict=True))
            expect(changed <= 1, "a unit less, or a smaller one, changes the batches of one teacher")


def _batches(images: np.ndarray, units: NDArray[np.int64]) -> list[np.ndarray]:
    """Every teacher's images over some steps."""
    shards = partition.members(partition.assign_shards(b"k" * 32, units, _SHARDS), _SHARDS)
    sampler = ShardSampler(images, np.zeros(len(units), dtype=np.int64), shards, batch_size=4, seed=1)
    steps = [sampler.batch(step).images.numpy() for step in range(_STEPS)]
    return [np.stack([step[teacher] for step in steps]) for teacher in range(_SHARDS)]


class _TwoPerBlock(TeacherEnsemble):
    """Several teachers share a block and several blocks follow each other."""

    def teachers_per_block(self, images: int) -> int:
        return 2


def _trained(held: Held) -> dict[str, np.ndarray]:
    """Parameters, moments and gradients of all teachers after some steps; teachers first."""
    schema = Schema(channels=1, height=_SIDE, width=_SIDE, class_names=("a", "b", "c", "d"), num_units=_RECORDS)
    sampler = ShardSampler(*held, batch_size=4, seed=1)
    network = Dense(schema, hidden=4)
    teachers = _TwoPerBlock(network, _TEACHERS, schema, "cpu", seed=2, active=sampler.active)
    synthetic = torch.rand(5, schema.dimensions, generator=torch.Generator().manual_seed(3))
    classes = torch.arange(5) % _CLASSES
    for step in range(_STEPS):
        teachers.train_step(*sampler.batch(step), synthetic, classes)
    said = torch.cat(list(teachers.image_gradients(synthetic, classes))).numpy()
    return {name: value for name, value in teachers.state().items() if value.ndim} | {"gradients": said}


def _what_moved(before: dict[str, np.ndarray], after: dict[str, np.ndarray], teacher: int) -> list[str]:
    """Names of everything about a teacher that differs in any bit."""
    return [name for name in before if before[name][teacher].tobytes() != after[name][teacher].tobytes()]


def _other_image(held: Held, row: int) -> Held:
    images = held.images.copy()
    images[row] = 255 - images[row]
    return held._replace(images=images)


def _other_label(held: Held, row: int) -> Held:
    labels = held.labels.copy()
    labels[row] = (labels[row] + 1) % _CLASSES
    return held._replace(labels=labels)


def _emptied(held: Held, row: int) -> Held:
    return held._replace(shards=[shard[shard != row] for shard in held.shards])


def _contents(key: bytes, units: NDArray[np.int64], labels: NDArray[np.int64] | None) -> Contents:
    """Units of every shard."""
    shards = partition.assign_shards(key, units, _SHARDS, labels, _CLASSES)
    return [tuple(units[rows].tolist()) for rows in partition.members(shards, _SHARDS)]


def _changed(before: Contents, after: Contents) -> int:
    return sum(first != second for first, second in zip(before, after, strict=True))


def _rare_classes(rng: np.random.Generator) -> NDArray[np.int64]:
    """Labels of classes of very different size."""
    return rng.choice(_CLASSES, p=[0.6, 0.3, 0.08, 0.02], size=_UNITS)
