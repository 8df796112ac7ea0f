"""The denoiser: its size by formula, images of any shape, rows that are independent, and what it learns."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from datalens_service.models.generators.denoiser.denoiser import (
    Denoiser,
    as_planes,
    fit_denoiser,
    follow_path,
    noise_schedule,
)
from datalens_service.models.generators.denoiser.denoiser_shape import DenoiserShape

from .builders import schema_of

SIZES = [(1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 6, 6), (1, 30, 17), (3, 224, 224)]


def randomized(shape: DenoiserShape) -> Denoiser:
    """Layers that start at zero hide what follows them."""
    network, generator = Denoiser(shape), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
    return network


@pytest.mark.parametrize(("channels", "height", "width"), SIZES)
@pytest.mark.parametrize("blocks", [1, 3])
def test_its_size_is_known_without_it(channels: int, height: int, width: int, blocks: int) -> None:
    shape = DenoiserShape(schema_of(channels, height, width), 8, blocks)
    network = Denoiser(shape)
    assert shape.num_weights() == sum(weight.numel() for weight in network.parameters())
    images = torch.zeros(2, channels, height, width)
    assert network(images, torch.ones(2), torch.eye(shape.schema.num_classes)[:2]).shape == images.shape


def test_many_classes_add_fewer_maps_each() -> None:
    many = schema_of(1, 28, 28).model_copy(update={"class_names": tuple(map(str, range(200)))})
    shape = DenoiserShape(many, 16, 2)
    assert shape.class_maps == 1
    assert shape.num_weights() == sum(weight.numel() for weight in Denoiser(shape).parameters())


def test_before_it_learns_it_shrinks_noise_towards_grey() -> None:
    """The best guess without knowledge of images, by the assumed standard deviation of pixels."""
    network = Denoiser(DenoiserShape(schema_of(1, 8, 8), 8, 1))
    images = torch.randn(3, 1, 8, 8)
    denoised = network(images, torch.tensor([0.0001, 0.5, 100.0]), torch.eye(3))
    torch.testing.assert_close(denoised[0], images[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(denoised[1], images[1] / 2)
    assert denoised[2].abs().max() < 1e-3


def test_an_image_depends_on_its_own_class_and_noise_level() -> None:
    network = randomized(DenoiserShape(schema_of(1, 8, 8), 8, 1))
    images, stddevs, classes = torch.randn(4, 1, 8, 8), torch.tensor([0.1, 0.5, 1.0, 2.0]), torch.eye(3)[[0, 1, 2, 0]]
    whole = network(images, stddevs, classes)
    torch.testing.assert_close(network(images[1:2], stddevs[1:2], classes[1:2]), whole[1:2])
    assert not torch.allclose(network(images, stddevs, classes.roll(1, dims=1)), whole)
    assert not torch.allclose(network(images, stddevs.flip(0), classes), whole)


def test_a_schedule_falls_to_zero() -> None:
    schedule = noise_schedule(10.0, 0.02, 12)
    assert schedule[0] == pytest.approx(10.0)
    assert schedule[-2:] == pytest.approx([0.02, 0.0])
    assert sorted(schedule, reverse=True) == schedule


def test_a_path_ends_at_what_a_perfect_denoiser_says() -> None:
    class Constant(Denoiser):
        def forward(self, images: torch.Tensor, stddevs: torch.Tensor, one_hot: torch.Tensor) -> torch.Tensor:
            return torch.full_like(images, 0.25)

    network = Constant(DenoiserShape(schema_of(1, 8, 8), 8, 1))
    noisy = torch.randn(2, 1, 8, 8) * 5
    ended = follow_path(network, noisy, torch.eye(3)[:2], noise_schedule(5.0, 0.02, 4))
    torch.testing.assert_close(ended, torch.full_like(noisy, 0.25))


@pytest.mark.parametrize(("guidance_scale", "brightness"), [(1.0, 0.3), (1.5, 0.4), (3.0, 0.7)])
def test_guidance_moves_images_away_from_what_all_classes_share(guidance_scale: float, brightness: float) -> None:
    """Classes are 0.3, 0 and 0 bright; their mixture is 0.1: 0.1 + scale · 0.2."""

    class Bright(Denoiser):
        def forward(self, images: torch.Tensor, stddevs: torch.Tensor, one_hot: torch.Tensor) -> torch.Tensor:
            return 0.3 * one_hot[:, 0, None, None, None].expand_as(images)

    network = Bright(DenoiserShape(schema_of(1, 8, 8), 8, 1))
    noisy, classes = torch.randn(1, 1, 8, 8) * 5, torch.eye(3)[:1]
    ended = follow_path(network, noisy, classes, noise_schedule(5.0, 0.02, 4), guidance_scale)
    torch.testing.assert_close(ended, torch.full_like(noisy, brightness))


def test_without_guidance_the_network_is_evaluated_half_as_often() -> None:
    network = Denoiser(DenoiserShape(schema_of(1, 8, 8), 8, 1))
    evaluations = []
    network.register_forward_hook(lambda *_: evaluations.append(1))
    for guidance_scale, expected in ((1.0, 7), (1.5, 14)):
        evaluations.clear()
        follow_path(network, torch.randn(1, 1, 8, 8), torch.eye(3)[:1], noise_schedule(5.0, 0.02, 4), guidance_scale)
        assert len(evaluations) == expected


def test_it_learns_classes_and_draws_them() -> None:
    """Class 0 is bright above, class 1 below."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 3
    images = rng.integers(0, 30, (400, 8, 8, 1)).astype(np.uint8)
    images[labels == 0, :4] += 200
    images[labels == 1, 4:] += 200
    network = Denoiser(DenoiserShape(schema_of(1, 8, 8), 8, 1))
    fit_denoiser(network, images, labels, steps=150, seed=0)
    asked = torch.arange(60) % 3
    noise = torch.from_numpy(rng.standard_normal((60, 1, 8, 8), dtype=np.float32)) * 10
    drawn = follow_path(network, noise, functional.one_hot(asked, 3).float(), noise_schedule(10.0, 0.02, 8))
    above, below = drawn[:, 0, :4].mean(dim=(1, 2)), drawn[:, 0, 4:].mean(dim=(1, 2))
    assert (above - below)[asked == 0].median() > 1
    assert (below - above)[asked == 1].median() > 1
    assert drawn[asked == 2].mean() < -0.6


def test_planes_are_centred() -> None:
    planes = as_planes(np.array([[[[0, 255]]]], dtype=np.uint8))
    assert planes.flatten().tolist() == [-1.0, 1.0]
