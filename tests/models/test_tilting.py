"""Tilts give samples the mean features they are told, as far as the penalty lets them."""

import numpy as np
import pytest

from datalens_service.models.generators.outlines.tilting import find_level, fit_tilt, penalty


def test_tilted_samples_have_the_mean_that_was_released() -> None:
    rng = np.random.default_rng(0)
    samples, mean = rng.standard_normal((20_000, 3)), np.array([0.3, 0.0, -0.2])
    weights = fit_tilt(samples, mean, 1e-6)
    shares = np.exp(samples @ weights)
    np.testing.assert_allclose(shares @ samples / shares.sum(), mean, atol=0.01)
    np.testing.assert_allclose(weights, mean, atol=0.05)


def test_a_penalty_holds_weights_back() -> None:
    samples, mean = np.random.default_rng(0).standard_normal((2000, 3)), np.array([0.5, 0.0, 0.0])
    lengths = [np.linalg.norm(fit_tilt(samples, mean, strength)) for strength in (0.01, 1.0, 100.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 0.01


def test_more_noise_is_more_penalty() -> None:
    assert penalty(0.0) == penalty(0.001) < penalty(0.01) < penalty(0.1)


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_a_level_accepts_its_share(share: float) -> None:
    scores = np.random.default_rng(0).standard_normal(5000) * 3
    accepted = np.exp(np.minimum(0, scores - find_level(scores, share))).mean()
    assert accepted == pytest.approx(share, abs=1e-3)
