"""Scores of generated images: golden prices, ranges, and what a teacher's own scores may depend on."""

import numpy as np
import pytest
import torch

from datalens_service.base.errors import InvalidSpec
from datalens_service.mechanisms import LabelScores, LabelScoresParameters
from datalens_service.privacy.accounting import NeighboringRelation, limit_units, smallest_noise_stddev
from privacy_gate.cases import vote

TEACHERS, IMAGES = 30, 6


def label_scores(scores: str, **changes: object) -> LabelScores:
    sizes: dict = {"num_teachers": TEACHERS, "images": IMAGES, "dimensions": 1, "scores": scores}
    return vote(LabelScores, **(sizes | changes))


def logits(scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(TEACHERS, IMAGES, 1, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("stddev", "units", "images"),
    [
        (100, 100_090_081_073, {0.2: 37, 1: 717, 10: 39_981}),
        (1_000, 1_000_009_001, {0.2: 3_761, 1: 71_850, 10: 4_001_746}),
    ],
)
@pytest.mark.parametrize("scores", ["bit", "share"])
def test_golden_prices_of_a_score(scores, stddev, units, images):
    one = label_scores(scores, images=1, weight=1, noise_stddev=stddev)
    assert one.cost() == units == one.cost(NeighboringRelation.REPLACE_ONE)
    assert {epsilon: limit_units(epsilon, 1e-5) // units for epsilon in images} == images


@pytest.mark.parametrize(
    ("queries", "epsilon", "stddev", "units"),
    [
        (1_500, 1, 9_248, 47_892_151_925),
        (1_500, 10, 1_240, 2_663_907_371_987),
        (15_000, 1, 29_243, None),
        (15_000, 10, 3_919, None),
    ],
)
def test_golden_noise_of_many_scores(queries, epsilon, stddev, units):
    squared = label_scores("bit").sensitivity_squared(NeighboringRelation.ZERO_OUT)
    assert smallest_noise_stddev(squared, queries, limit_units(epsilon, 1e-5)) == stddev
    assert units is None or label_scores("bit", images=1, noise_stddev=stddev).cost() == units


def test_relative_scores_cost_four_times_as_much():
    zero_out = NeighboringRelation.ZERO_OUT
    assert label_scores("relative").sensitivity_squared(zero_out) == 4 * label_scores("bit").sensitivity_squared(
        zero_out
    )


def test_scores_stay_in_their_range_and_say_what_logits_say():
    encoded = {scores: label_scores(scores).encode(logits(), torch.Generator()) for scores in ("bit", "share")}
    assert set(encoded["bit"].unique().tolist()) == {0, 64}
    assert torch.equal(encoded["bit"] > 0, logits() > 0)
    assert torch.equal(encoded["share"], (64 * logits().double().sigmoid()).round().int())


def test_relative_scores_rank_a_teachers_own_images():
    relative = label_scores("relative").encode(logits() + 100.0, torch.Generator()).squeeze(-1)
    assert relative.min() == -64
    assert relative.max() == 64
    ranks = logits().squeeze(-1).argsort(dim=1)
    assert (relative.gather(1, ranks).diff(dim=1) >= 0).all()


def test_scores_outside_their_range_are_dropped():
    for scores, outside in (("bit", -1), ("bit", 65), ("share", 65), ("relative", -65)):
        votes = torch.zeros(1, IMAGES, 1, dtype=torch.int32)
        votes[0, 2, 0] = outside
        assert not label_scores(scores).zero_out_of_bound_rows(votes).any()


def test_what_is_released_is_the_mean_of_those_who_answer():
    mechanism = label_scores("bit", classes_voted_apart=2)
    block = torch.zeros(TEACHERS, IMAGES, 1)
    block[:15, :3], block[15:, 3:] = 1.0, -1.0
    np.testing.assert_allclose(mechanism.decode(mechanism.exact_sum([block])).ravel(), [1, 1, 1, 0, 0, 0])


def test_scores_are_no_votes_on_coordinates():
    with pytest.raises(InvalidSpec, match="pate_gan"):
        LabelScoresParameters().check(64)
