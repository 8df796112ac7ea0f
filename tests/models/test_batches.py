import numpy as np
import pytest
import torch

from datalens_service.data.shard_batches import ShardSampler

SHARDS = [np.array([0, 4, 8, 2]), np.zeros(0, dtype=np.int64), np.array([5]), np.array([1, 3, 9, 7, 6, 11])]


def sampler(shards: list[np.ndarray] = SHARDS, batch_size: int = 4, seed: int = 1) -> ShardSampler:
    # Every pixel of record r is r, its label is r mod 3.
    images = np.broadcast_to(np.arange(12, dtype=np.uint8)[:, None, None, None], (12, 2, 3, 1))
    return ShardSampler(images, np.arange(12) % 3, shards, batch_size, seed)


def test_a_teacher_gets_records_of_its_own_shard_with_their_labels():
    for step in range(20):
        images, labels = sampler().batch(step)
        assert images.dtype == torch.uint8
        assert images.shape == (4, 4, 6)
        for teacher in (0, 2, 3):
            rows = images[teacher, :, 0]
            assert set(rows.tolist()) <= set(SHARDS[teacher].tolist())
            assert labels[teacher].tolist() == (rows % 3).tolist()


def test_a_batch_as_long_as_the_shard_is_the_shard():
    for step in range(5):
        assert sorted(sampler().batch(step).images[0, :, 0].tolist()) == [0, 2, 4, 8]


def test_all_records_of_a_longer_shard_come_up_equally_often():
    drawn = torch.cat([sampler().batch(step).images[3, :, 0] for step in range(600)])
    counts = np.bincount(drawn.numpy(), minlength=12)[SHARDS[3]]
    # 400 expected each; a batch holds a record or not, so the deviation is about sqrt(600·(4/6)(2/6)) = 12.
    assert np.abs(counts - 400).max() < 60


def test_an_empty_shard_is_inactive_and_reads_nobodys_records():
    found = sampler()
    assert found.active.tolist() == [True, False, True, True]
    images, labels = found.batch(0)
    assert images[1].sum() == 0
    assert labels[1].sum() == 0


def test_all_shards_may_be_empty():
    empty = sampler([np.zeros(0, dtype=np.int64)] * 3)
    assert not empty.active.any()
    assert empty.batch(0).images.sum() == 0


def test_a_sorted_upload_does_not_give_batches_of_neighbours():
    batches = [sampler([np.arange(12)], batch_size=2, seed=seed).batch(0).images[0, :, 0] for seed in range(10)]
    distances = [int(abs(int(a) - int(b))) for a, b in batches]
    assert max(distances) > 1


def test_steps_differ_and_repeat():
    found = sampler()
    first = [found.batch(step).images for step in range(6)]
    assert any(not torch.equal(first[0], other) for other in first[1:])
    again = sampler()
    for step in (5, 0):
        assert torch.equal(again.batch(step).images, first[step])


@pytest.mark.parametrize("teacher", [0, 2, 3])
def test_leaving_out_a_record_changes_one_teachers_batches_only(teacher: int):
    shards = [rows[1:] if number == teacher else rows for number, rows in enumerate(SHARDS)]
    for step in range(10):
        before, after = sampler().batch(step), sampler(shards).batch(step)
        same = [torch.equal(a, b) for a, b in zip(before.images, after.images, strict=True)]
        assert all(same[:teacher] + same[teacher + 1 :])
