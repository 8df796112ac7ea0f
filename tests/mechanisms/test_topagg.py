"""TopkStoSignGrad against a plain NumPy reading of the paper, thresholds, and class-pure charging."""

import numpy as np
import pytest
import torch

from datalens_service.mechanisms import CountSketchParameters, TopAgg, TopAggParameters
from datalens_service.privacy.accounting import NeighboringRelation, cost_ledger_units


def topagg(**changes: object) -> TopAgg:
    defaults: dict = {
        "num_teachers": 100, "images": 4, "dimensions": 25, "top_k": 6, "clip": 0.5,
        "stochastic": False, "threshold": 0.5, "noise_stddev": 1000,
    }  # fmt: skip
    return TopAgg(**(defaults | changes))


def plain_vote(gradient: np.ndarray, top_k: int, clip: float, coins: np.ndarray | None) -> np.ndarray:
    """DataLens, Algorithm 2, for one image of one teacher; `coins` are uniform numbers, None takes the sign."""
    kept = np.argsort(-np.abs(gradient), kind="stable")[:top_k]
    clipped = np.clip(gradient, -clip, clip)
    normalised = clipped / np.abs(clipped).max()
    vote = np.zeros(gradient.shape)
    for place in kept:
        if coins is None:
            vote[place] = np.sign(normalised[place])
        else:
            vote[place] = 1 if coins[place] < (1 + normalised[place]) / 2 else -1
    return vote


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("clip", [10.0**exponent for exponent in range(-6, 1)])
def test_votes_are_the_papers_for_every_clip(clip: float, stochastic: bool):
    gradients = np.random.default_rng(0).standard_normal((9, 4, 25)) * 0.01
    mechanism = topagg(clip=clip, stochastic=stochastic)
    votes = mechanism.encode(torch.tensor(gradients), torch.Generator().manual_seed(1)).numpy()
    coins = torch.rand(gradients.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).numpy()
    expected = np.array([
        [plain_vote(image, 6, clip, coin if stochastic else None) for image, coin in zip(teacher, row, strict=True)]
        for teacher, row in zip(gradients, coins, strict=True)
    ])  # fmt: skip
    np.testing.assert_array_equal(votes, expected)


@pytest.mark.parametrize("vote", [TopAggParameters(top_k=200), CountSketchParameters(top_k=200, columns=40_000)])
def test_votes_reach_every_row_of_an_image_behind_a_small_clip(vote):
    """Nearly every coordinate of a gradient is larger than the published clip of 1e-5."""
    common = {
        "num_teachers": 30, "images": 2, "dimensions": 784, "clip": 1e-5, "stochastic": True, "threshold": "none",
        "noise_stddev": 5000,
    }  # fmt: skip
    mechanism = vote.build(common)
    gradients = torch.randn(30, 2, 784, generator=torch.Generator().manual_seed(0)) * 1e-2
    moved = np.abs(mechanism.decode(mechanism.exact_sum([gradients]))).reshape(2, 28, 28)
    assert (moved > 0).any(axis=2).all()


def test_stochastic_signs_are_unbiased():
    gradient = torch.tensor([1.0, 0.5, -0.5, 0.2]).expand(40_000, 1, 4)
    mechanism = topagg(stochastic=True, top_k=4, dimensions=4, images=1, clip=10.0)
    votes = mechanism.encode(gradient, torch.Generator().manual_seed(1)).double().mean(dim=0).ravel()
    np.testing.assert_allclose(votes, [1.0, 0.5, -0.5, 0.2], atol=0.025)


def test_threshold_keeps_clear_majorities_only():
    noisy = np.array([[50, 49, -50, -51, 0]])
    np.testing.assert_array_equal(topagg().decode(noisy), [[1, 0, -1, -1, 0]])
    np.testing.assert_allclose(topagg(threshold="none").decode(noisy), noisy / 100)


def test_total_adds_blocks_without_overflow():
    block = torch.ones(300, 4, 25)
    total = topagg(top_k=25, num_teachers=1500).exact_sum([block] * 5)
    assert total.dtype == np.int64
    assert (total == 1500).all()


def test_images_of_different_classes_are_charged_in_parallel():
    mixed = topagg(images=20)
    apart = topagg(images=20, classes_voted_apart=10)
    each = cost_ledger_units(4 * 6, 1000)
    assert mixed.cost() == mixed.cost(NeighboringRelation.REPLACE_ONE) == 20 * each
    assert apart.cost() == 2 * each
    assert apart.cost(NeighboringRelation.REPLACE_ONE) == 4 * each, "a relabelled unit reaches two teachers"
