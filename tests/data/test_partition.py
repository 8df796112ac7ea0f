import hashlib
import hmac

import numpy as np
import pytest

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.partition import assign_shards, members

KEY = b"k" * 32
NUM_UNITS, NUM_SHARDS, NUM_CLASSES = 100, 20, 10
UNITS = np.arange(NUM_UNITS, dtype=np.int64)
LABELS = np.random.default_rng(0).integers(0, NUM_CLASSES, NUM_UNITS)


def pure(labels: np.ndarray, units: np.ndarray = UNITS) -> np.ndarray:
    return assign_shards(KEY, units, NUM_SHARDS, labels, NUM_CLASSES)


def test_a_shard_is_the_keyed_hash_of_the_unit() -> None:
    def oracle(unit: int) -> int:
        digest = hmac.new(KEY, unit.to_bytes(8, "big"), hashlib.sha256).digest()
        return int.from_bytes(digest[:8], "big") % NUM_SHARDS

    assert assign_shards(KEY, UNITS, NUM_SHARDS).tolist() == [oracle(unit) for unit in range(NUM_UNITS)]


@pytest.mark.parametrize("labels", [None, LABELS], ids=["mixed", "class-pure"])
def test_a_unit_keeps_its_shard_whoever_else_is_there(labels: np.ndarray | None) -> None:
    everyone = assign_shards(KEY, UNITS, NUM_SHARDS, labels, NUM_CLASSES)
    chosen = np.random.default_rng(1).permutation(NUM_UNITS)[:50]
    alone = assign_shards(KEY, UNITS[chosen], NUM_SHARDS, None if labels is None else labels[chosen], NUM_CLASSES)
    assert alone.tolist() == everyone[chosen].tolist()


def test_relabelling_one_record_moves_that_record_alone() -> None:
    before = pure(LABELS)
    for record in range(NUM_UNITS):
        labels = LABELS.copy()
        labels[record] = (labels[record] + 1) % NUM_CLASSES
        moved = np.flatnonzero(pure(labels) != before)
        assert moved.tolist() == [record]


def contents(shards: np.ndarray, records: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(records[rows]) for rows in members(shards, NUM_SHARDS)]


@pytest.mark.parametrize("labels", [None, LABELS], ids=["mixed", "class-pure"])
def test_emptying_a_record_changes_exactly_one_shard(labels: np.ndarray | None) -> None:
    shards = assign_shards(KEY, UNITS, NUM_SHARDS, labels, NUM_CLASSES)
    before = contents(shards, UNITS)
    for record in range(NUM_UNITS):
        kept = np.delete(UNITS, record)
        after = contents(
            assign_shards(KEY, kept, NUM_SHARDS, None if labels is None else labels[kept], NUM_CLASSES), kept
        )
        changed = [shard for shard in range(NUM_SHARDS) if before[shard] != after[shard]]
        assert changed == [shards[record]]


@pytest.mark.parametrize("labels", [None, LABELS], ids=["mixed", "class-pure"])
def test_another_record_changes_the_members_of_one_shard(labels: np.ndarray | None) -> None:
    """One that comes in addition, under a number of its own, joins one shard; the others stay as they are."""
    before = contents(assign_shards(KEY, UNITS, NUM_SHARDS, labels, NUM_CLASSES), UNITS)
    for record in range(NUM_UNITS, 2 * NUM_UNITS):
        units = np.append(UNITS, record)
        more = None if labels is None else np.append(labels, record % NUM_CLASSES)
        after = contents(assign_shards(KEY, units, NUM_SHARDS, more, NUM_CLASSES), units)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_class_pure_shards_hold_one_class_each() -> None:
    shards = pure(LABELS)
    assert (shards // (NUM_SHARDS // NUM_CLASSES) == LABELS).all()


@pytest.mark.parametrize("key", [b"", b"k" * 15])
def test_nobody_is_dealt_with_a_key_that_can_be_guessed(key: bytes) -> None:
    for labels in (None, LABELS):
        with pytest.raises(InvalidDataset, match="key"):
            assign_shards(key, UNITS, NUM_SHARDS, labels, NUM_CLASSES)


def test_another_key_deals_differently() -> None:
    same = assign_shards(b"another key" * 3, UNITS, NUM_SHARDS) == assign_shards(KEY, UNITS, NUM_SHARDS)
    assert same.mean() < 0.1


def test_shards_are_about_equally_large() -> None:
    sizes = np.bincount(assign_shards(KEY, np.arange(20_000), 40), minlength=40)
    # Binomial(20000, 1/40): mean 500, standard deviation 22; 6 deviations.
    assert abs(sizes - 500).max() < 132


def test_members_lists_every_row_once_in_order_and_keeps_empty_shards() -> None:
    listed = members(np.array([3, 1, 3, 1, 0]), 6)
    assert [rows.tolist() for rows in listed] == [[4], [1, 3], [], [0, 2], [], []]
