"""The fast form of noisy directions has the sums of the product's own, and their noise."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from benchmarks.audits import PART, turn_parts
from benchmarks.directions import DirectionalNoise, GaussianNoise, RecordGradients, RecordSum
from datalens_service.data.dataset import Schema
from datalens_service.methods.descent.noisy_directions import mean_cosine
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.privacy.randomness import NoiseSource

from .methods import builders

RECORDS = 12


@pytest.fixture
def schema() -> Schema:
    return builders.stripes(count=RECORDS, side=16).schema


def batch_of(schema: Schema) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(RECORDS, schema.channels, schema.height, schema.width, generator=generator)
    return images, torch.randint(schema.num_classes, (RECORDS,), generator=generator)


@pytest.mark.parametrize("architecture", ["mlp", "lenet"])
@pytest.mark.parametrize("scaled", [True, False])
def test_sums_are_those_of_records_taken_one_by_one(architecture: str, scaled: bool, schema: Schema) -> None:
    network = build_network({"architecture": architecture}, schema, seed=3)
    images, labels = batch_of(schema)
    expected = [torch.zeros_like(weight) for weight in network.parameters()]
    energy = 0.0
    for image, label in zip(images, labels, strict=True):
        loss = functional.cross_entropy(network(image[None]), label[None])
        rows = torch.autograd.grad(loss, list(network.parameters()))
        length = torch.cat([row.flatten() for row in rows]).norm()
        factor = 1 / length if scaled else 1 / length.clamp(min=1.0)
        energy += float((factor * length) ** 2)
        expected = [before + factor * row for before, row in zip(expected, rows, strict=True)]
    gradients = RecordGradients(network)
    records = gradients.gather(images, labels, scaled=scaled)
    gradients.assign(records.total())
    for weight, sum_of_rows in zip(network.parameters(), expected, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, sum_of_rows, atol=1e-5, rtol=1e-4)
    assert float(records.energy()) == pytest.approx(energy, rel=1e-4)
    assert float(records.squares().sum()) == pytest.approx(energy, rel=1e-4)


@pytest.mark.parametrize("concentration", [0.01, 1.0, 30.0])
def test_noise_has_the_cosine_and_the_length_of_the_sampler(concentration: float, schema: Schema) -> None:
    network = build_network({"architecture": "linear"}, schema, seed=3)
    records = RecordGradients(network).gather(*batch_of(schema), scaled=True)
    total = records.total()
    kappa, generator = concentration * len(total), torch.Generator().manual_seed(1)
    ours = torch.stack([DirectionalNoise(kappa).turn(records, generator) for _ in range(400)]).double().numpy()
    direction = np.zeros((RECORDS, len(total)))
    direction[:, 0] = 1.0
    theirs = np.stack([NoiseSource().directions(direction, kappa).sum(axis=0) for _ in range(400)])
    along = total.numpy() / float(total.norm())
    cosine = mean_cosine(kappa, len(total))
    tolerance = 6 * np.sqrt(RECORDS / len(total) / 400)
    assert (ours @ along).mean() == pytest.approx(cosine * float(total.norm()), abs=tolerance)
    assert theirs[:, 0].mean() == pytest.approx(cosine * RECORDS, abs=tolerance)
    across = ours - np.outer(ours @ along, along)
    assert np.square(across).sum(axis=1).mean() == pytest.approx(np.square(theirs[:, 1:]).sum(axis=1).mean(), rel=0.05)


@pytest.mark.parametrize("part", [4, 10])
def test_parts_have_the_cosine_of_the_sampler(part: int) -> None:
    lengths, kappa, draws = torch.tensor([1.0, 0.0, 2.0]), 0.5, 40_000
    rows = torch.zeros(3, part)
    rows[:, 0] = lengths
    records, generator = RecordSum([(torch.ones(1, 1), rows.view(1, -1))]), torch.Generator().manual_seed(1)
    ours = torch.stack([DirectionalNoise(kappa, part).turn(records, generator) for _ in range(draws)]).mean(dim=0)
    theirs = NoiseSource().directions(np.repeat(np.eye(part)[:1], draws, axis=0), kappa)[:, 0].mean()
    tolerance = 6 * 2 / np.sqrt(part * draws)
    assert ours.view(3, part)[:, 0].tolist() == pytest.approx([theirs, 0.0, 2 * theirs], abs=tolerance)


def test_a_linear_layer_on_two_classes_has_directions_that_know_no_weights(schema: Schema) -> None:
    """Which is why descent along directions corrects no errors there: a record pulls the same way, right or wrong."""
    images, labels = batch_of(schema)
    assert schema.num_classes == 2
    networks = [build_network({"architecture": "linear"}, schema, seed=seed) for seed in (1, 2)]
    sums = [RecordGradients(network).gather(images, labels, scaled=True).total() for network in networks]
    torch.testing.assert_close(sums[0], sums[1])


def test_parts_keep_their_lengths(schema: Schema) -> None:
    network = build_network({"architecture": "linear"}, schema, seed=3)
    records = RecordGradients(network).gather(*batch_of(schema), scaled=True)
    generator = torch.Generator().manual_seed(1)
    noisy = torch.stack([DirectionalNoise(1e-6, part=7).turn(records, generator) for _ in range(400)])
    squares = functional.pad(records.squares(), (0, -len(noisy[0]) % 7)).view(-1, 7).sum(dim=1)
    found = functional.pad(noisy.square().mean(dim=0), (0, -len(noisy[0]) % 7)).view(-1, 7).sum(dim=1)
    assert torch.allclose(found, squares, rtol=0.3, atol=1e-6)


def test_gaussian_noise_has_the_size_of_its_multiplier(schema: Schema) -> None:
    network = build_network({"architecture": "linear"}, schema, seed=3)
    records = RecordGradients(network).gather(*batch_of(schema), scaled=False)
    generator = torch.Generator().manual_seed(1)
    noisy = torch.stack([GaussianNoise(2.5).turn(records, generator) for _ in range(400)])
    assert float((noisy - records.total()).std()) == pytest.approx(2.5, rel=0.02)


def test_attacked_parts_keep_their_lengths_and_turn_as_far_as_the_sampler_says() -> None:
    rows = torch.randn(40, 1003, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(turn_parts(rows, 1e12), rows, atol=1e-4, rtol=0)
    before, after = rows[:, :1000].reshape(-1, PART), turn_parts(rows, 5.0)[:, :1000].reshape(-1, PART)
    torch.testing.assert_close(after.norm(dim=1), before.norm(dim=1))
    expected = DirectionalNoise(5.0, PART)._cosine_of_parts()
    assert functional.cosine_similarity(before, after).mean() == pytest.approx(expected, abs=0.02)
