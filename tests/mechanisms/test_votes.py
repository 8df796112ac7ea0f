"""The guard that all votes share, exact selection of the largest coordinates, and thresholds."""

import numpy as np
import pytest
import torch

from datalens_service.base.errors import ContributionFailed
from datalens_service.mechanisms import ClippedRows, CountSketch, Histogram, KLevel, PartialGradients, TopAgg
from datalens_service.mechanisms.topagg import sign_votes
from privacy_gate.cases import IMAGES, NUM_TEACHERS, PIXELS, vote

GUARDED = [
    vote(TopAgg, top_k=8),
    vote(KLevel, levels=17, row_norm_squared=900),
    vote(CountSketch, top_k=8, rows=5, columns=16),
    vote(Histogram, projections=5, bins=4, weight=3),
    vote(ClippedRows, grid=50),
]
each_vote = pytest.mark.parametrize("mechanism", GUARDED, ids=lambda mechanism: mechanism.name)


def row_of_squared_length(mechanism, squared: int) -> torch.Tensor:
    """Ones, then as large an entry as is needed: the first `squared` sums of squares are all reached."""
    row = torch.zeros(mechanism.coordinates, dtype=torch.int32)
    for place in range(mechanism.coordinates):
        row[place] = int(np.sqrt(squared))
        squared -= int(row[place]) ** 2
    assert squared == 0
    return row


@each_vote
def test_the_guard_is_exact_at_the_bound(mechanism):
    votes = torch.zeros(3, IMAGES, mechanism.coordinates, dtype=torch.int32)
    votes[0, 0] = row_of_squared_length(mechanism, mechanism.row_bound_squared)
    votes[1, 0] = row_of_squared_length(mechanism, mechanism.row_bound_squared + 1)
    guarded = mechanism.zero_out_of_bound_rows(votes)
    assert torch.equal(guarded[0], votes[0])
    assert not guarded[1].any()


@each_vote
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_the_guard_is_not_fooled_by_overflow(mechanism, dtype):
    """Squares of 64, 2^14, 2^30 and 2^62 are 0 in integers of 8, 16, 32 and 64 bits."""
    votes = torch.full((2, IMAGES, mechanism.coordinates), torch.iinfo(dtype).min, dtype=dtype)
    assert not mechanism.zero_out_of_bound_rows(votes).any()
    votes[:] = 0
    votes[0, 0, 0] = 2 ** (torch.iinfo(dtype).bits - 2)
    votes[1, 0, 0] = torch.iinfo(dtype).max
    assert not mechanism.zero_out_of_bound_rows(votes).any()


@each_vote
def test_the_guard_refuses_votes_that_are_no_integers(mechanism):
    with pytest.raises(ContributionFailed, match="integers"):
        mechanism.zero_out_of_bound_rows(torch.zeros(1, IMAGES, mechanism.coordinates))


@each_vote
def test_votes_on_a_part_of_the_images_count_there_only(mechanism):
    mechanism = mechanism.model_copy(update={"classes_voted_apart": 2, "stochastic": False})
    own = torch.randn(3, mechanism.images_per_teacher, PIXELS, generator=torch.Generator().manual_seed(1))
    rows = slice(IMAGES - mechanism.images_per_teacher, IMAGES)
    whole = torch.zeros(3, IMAGES, PIXELS)
    whole[:, rows] = own
    part = mechanism.exact_sum([PartialGradients(own, rows)])
    np.testing.assert_array_equal(part, mechanism.exact_sum([whole]))
    assert part[rows].any()
    too_many = torch.ones(3, mechanism.images_per_teacher + 1, PIXELS)
    assert not mechanism.exact_sum([PartialGradients(too_many, slice(0, mechanism.images_per_teacher + 1))]).any()


def test_more_teachers_than_declared_are_refused():
    mechanism = vote(TopAgg, top_k=8)
    blocks = [torch.ones(NUM_TEACHERS, IMAGES, PIXELS), torch.ones(1, IMAGES, PIXELS)]
    mechanism.exact_sum(blocks[:1])
    with pytest.raises(ContributionFailed, match="16 teachers"):
        mechanism.exact_sum(blocks)


def test_exactly_k_are_kept_and_the_first_among_equals():
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        # Few different values, so that nearly every row has ties at its bar.
        gradients = rng.integers(-4, 5, (50, 3, 40)).astype(dtype)
        for top_k in (1, 7, 39, 40, 60):
            votes = sign_votes(torch.from_numpy(gradients), top_k, 10.0, None).numpy()
            order = np.argsort(-np.abs(gradients), axis=-1, kind="stable")
            expected = np.zeros_like(votes)
            kept = np.take_along_axis(np.sign(gradients), order[..., :top_k], axis=-1).astype(np.int8)
            np.put_along_axis(expected, order[..., :top_k], kept, axis=-1)
            np.testing.assert_array_equal(votes, expected)


def test_selection_reads_memory_of_any_layout():
    gradients = torch.randn(6, 20, 5, generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    assert not gradients.is_contiguous()
    votes = sign_votes(gradients, 4, 10.0, None)
    assert torch.equal(votes, sign_votes(gradients.contiguous(), 4, 10.0, None))


def test_coins_and_hashes_repeat_by_seed_alone():
    block = [torch.randn(NUM_TEACHERS, IMAGES, PIXELS, generator=torch.Generator().manual_seed(1))]
    for mechanism in (
        vote(TopAgg, top_k=8, stochastic=True),
        vote(KLevel, levels=5, stochastic=True),
        vote(CountSketch, top_k=8, rows=2, columns=9, stochastic=True),
    ):
        np.testing.assert_array_equal(mechanism.exact_sum(block), mechanism.exact_sum(block))
        other = mechanism.model_copy(update={"seed": 1})
        assert not np.array_equal(mechanism.exact_sum(block), other.exact_sum(block))
        assert mechanism.cost() == other.cost()
