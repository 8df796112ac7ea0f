"""Teachers in closed form: the gradient of the witness function, and nothing of one shard in another's vote."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from datalens_service.base.errors import CheckpointMismatch
from datalens_service.data.shard_batches import ShardBatch, ShardSampler
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.teachers.kernel import KernelTeachers
from datalens_service.models.teachers.partitions import partition_teachers

from .builders import Batch, random_batches
from .test_isolation import CHANGED_TEACHER, SCHEMA, TEACHERS, emptied, other_label, other_pixels, records, removed

Shards = list[np.ndarray]


class ThreePerBlock(KernelTeachers):
    def teachers_per_block(self, images: int) -> int:
        return 3


def said(make: type[KernelTeachers], batch: Batch, **settings: object) -> Tensor:
    teachers = make(len(batch[0]), ShardBatch(*batch[:2]), "cpu", **settings)
    return torch.cat(list(teachers.image_gradients(batch[2], batch[3])))


def votes(images: np.ndarray, labels: np.ndarray, shards: Shards) -> np.ndarray:
    sampler = ShardSampler(images, labels, shards, batch_size=5, seed=1)
    synthetic = random_batches(SCHEMA, 1, 1)[0][2:]
    return said(ThreePerBlock, (*sampler.batch(0), *synthetic), active=sampler.active).numpy()


def moved(neighbour: Callable) -> set[int]:
    before, after = votes(*records()), votes(*neighbour())
    return {number for number in range(TEACHERS) if before[number].tobytes() != after[number].tobytes()}


def witness(image: Tensor, own: Tensor, others: Tensor) -> Tensor:
    """Energy distance's witness function, larger where records are."""
    away, near = (torch.linalg.vector_norm(image - vectors, dim=1) for vectors in (others, own))
    return (away.mean() if len(others) else torch.zeros(())) - near.mean()


def test_a_vote_is_the_gradient_of_the_witness_function():
    batch = random_batches(SCHEMA, TEACHERS, 1)[0]
    found = said(ThreePerBlock, batch)
    real, real_labels, synthetic, labels = batch
    for teacher in range(TEACHERS):
        for image in range(len(labels)):
            own = real[teacher][real_labels[teacher] == labels[image]]
            same = labels == labels[image]
            same[image] = False
            expected = torch.zeros(SCHEMA.dimensions)
            if len(own):
                point = synthetic[image].clone().requires_grad_()
                (expected,) = torch.autograd.grad(witness(point, own, synthetic[same]), point)
            np.testing.assert_allclose(found[teacher, image], expected, atol=2e-5)


def test_in_a_basis_teachers_see_its_coordinates_alone():
    basis = torch.from_numpy(dct_basis(SCHEMA, 10))
    real, real_labels, synthetic, labels = random_batches(SCHEMA, TEACHERS, 1)[0]
    found = said(ThreePerBlock, (real, real_labels, synthetic, labels), basis=basis)
    expected = said(ThreePerBlock, (real @ basis, real_labels, synthetic @ basis, labels))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_bytes_are_pixels_and_an_image_that_is_a_record_is_no_problem():
    images = torch.arange(64, dtype=torch.uint8).repeat(2, 1, 1)
    labels, label = torch.zeros(2, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    record = torch.arange(64)[None].float() / 255
    assert said(KernelTeachers, (images, labels, record, label)).abs().max() < 1e-3
    away = said(KernelTeachers, (images, labels, record + 0.1, label))
    np.testing.assert_allclose(away, torch.full_like(away, -1 / 8), atol=1e-4)


@pytest.mark.parametrize("neighbour", [other_pixels, other_label, removed, emptied])
def test_one_record_moves_its_own_teacher_only(neighbour: Callable):
    assert moved(neighbour) == {CHANGED_TEACHER}


def test_a_teacher_without_records_says_nothing():
    found = votes(*emptied())
    assert not found[CHANGED_TEACHER].any()
    assert found[CHANGED_TEACHER - 1].any()


def test_blocks_and_ranks_change_nothing():
    batch = random_batches(SCHEMA, 256, 1)[0]
    whole = said(KernelTeachers, batch)
    parts = []
    for rank in range(2):
        own = [part for part in partition_teachers(256) if part.start // 128 == rank]
        rows = slice(own[0].start, own[-1].stop)
        teachers = KernelTeachers(256, ShardBatch(batch[0][rows], batch[1][rows]), "cpu", partitions=own)
        parts += teachers.image_gradients(batch[2], batch[3])
    assert torch.equal(torch.cat(parts), whole)
    np.testing.assert_allclose(said(ThreePerBlock, batch), whole, atol=1e-6)


def test_memory_is_bounded_by_blocks():
    batch = random_batches(SCHEMA, TEACHERS, 1)[0]
    teachers = KernelTeachers(TEACHERS, ShardBatch(*batch[:2]), "cpu", block_bytes=1)
    assert [len(block) for block in teachers.image_gradients(batch[2], batch[3])] == [1] * TEACHERS


def test_they_leave_no_state_and_take_none():
    batch = random_batches(SCHEMA, TEACHERS, 1)[0]
    teachers = KernelTeachers(TEACHERS, ShardBatch(*batch[:2]), "cpu")
    before = torch.cat(list(teachers.image_gradients(batch[2], batch[3])))
    teachers.train_step(*batch)
    assert torch.equal(torch.cat(list(teachers.image_gradients(batch[2], batch[3]))), before)
    assert teachers.state() == {}
    with pytest.raises(CheckpointMismatch, match="trained"):
        teachers.restore({"steps": np.array(1)})
