"""TopkStoSignGrad against a plain NumPy reading of the paper, thresholds, and class-pure charging."""

import numpy as np
import torch

from datalens_service.mechanisms import TopAgg
from datalens_service.privacy.accounting import NeighboringRelation, cost_units


def topagg(**changes: object) -> TopAgg:
    defaults: dict = {
        "num_teachers": 100, "images": 4, "dimensions": 25, "top_k": 6, "clip": 0.5,
        "stochastic": False, "threshold": 0.5, "noise_stddev": 1000,
    }  # fmt: skip
    return TopAgg(**(defaults | changes))


def plain_vote(gradient: np.ndarray, top_k: int, clip: float) -> np.ndarray:
    """DataLens, Algorithm 2, for one image of one teacher, without the coin."""
    clipped = np.clip(gradient, -clip, clip)
    normalised = clipped / np.abs(clipped).max()
    kept = np.argsort(-np.abs(normalised), kind="stable")[:top_k]
    vote = np.zeros(gradient.shape)
    vote[kept] = np.sign(normalised[kept])
    return vote


def test_votes_are_the_papers():
    rng = np.random.default_rng(0)
    gradients = rng.standard_normal((9, 4, 25)) * 0.1
    votes = topagg().encode(torch.tensor(gradients), torch.Generator()).numpy()
    expected = np.array([[plain_vote(image, 6, 0.5) for image in teacher] for teacher in gradients])
    np.testing.assert_array_equal(votes, expected)


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
    each = cost_units(4 * 6, 1000)
    assert mixed.cost() == mixed.cost(NeighboringRelation.REPLACE_ONE) == 20 * each
    assert apart.cost() == 2 * each
    assert apart.cost(NeighboringRelation.REPLACE_ONE) == 4 * each, "a relabelled unit reaches two teachers"
