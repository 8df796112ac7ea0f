"""Gradient inversion on scikit-learn's digits: a raw gradient gives its image away, a noisy one does not."""

import math

import pytest
import torch

from datalens_service.audits.inversion import invert_gradients, observe_gradients, squared_errors
from datalens_service.audits.inversion_figures import InversionSettings
from datalens_service.data.dataset import Schema
from datalens_service.models.classifiers.architectures import build_network

SCHEMA = Schema(channels=1, height=8, width=8, class_names=tuple("0123456789"), num_units=100)
SPREAD = 0.38
"""Public standard deviation of the digits' pixels."""


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return torch.from_numpy(bunch.images[:6, None] / 16).float(), torch.from_numpy(bunch.target[:6]).long()


def median_error(digits: tuple[torch.Tensor, torch.Tensor], clip_norm: float, noise_multiplier: float) -> float:
    network = build_network({"architecture": "mlp"}, SCHEMA)
    rows = observe_gradients(network, *digits)
    clipped = rows * (clip_norm / rows.norm(dim=1, keepdim=True)).clamp_max(1)
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(0))
    observed = clipped + noise_multiplier * min(clip_norm, 1.0) * noise
    settings = InversionSettings(iterations=200, restarts=1)
    images = invert_gradients(network, observed, digits[1], (1, 8, 8), settings)
    return float(squared_errors(images, digits[0], SPREAD).median())


def test_a_raw_gradient_gives_its_image_away(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert median_error(digits, math.inf, 0) < 0.05


def test_clipping_alone_hides_nothing(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert median_error(digits, 0.1, 0) < 0.05


def test_noise_destroys_it(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert median_error(digits, 1.0, 1.0) > 0.9
