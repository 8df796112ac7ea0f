"""Table 2 of directional privacy (Faustini et al. 2023) on Fashion-MNIST and CIFAR-10: a cell a line, as JSON.

    python -m benchmarks.directions --architecture mlp --gradients plain
    python -m benchmarks.directions --architecture mlp --epsilon-v 1 500 300000
    python -m benchmarks.directions --architecture mlp --epsilon-v 1 --part 10
    python -m benchmarks.directions --architecture mlp --gradients clipped --epsilon-g 0.8 50
    python -m benchmarks.directions --architecture mlp --dataset cifar10 --records 10000 --gradients plain

Batch, rate and passes are those of the paper's table 1, with Adam; widths of its networks are not stated there, ours
are those of the product. `plain` is the mean gradient, `directions` the mean of gradients that are scaled to length 1
one by one, `clipped` the mean of gradients of which only the longer ones are. The concentration is κ = ε_V/2. `--part`
splits a gradient into blocks of so many coordinates that are turned one by one and keep their lengths: the paper
partitions "sometimes" and does not say where. For ε_G, Gaussian noise is added to the sum of cut gradients. Its size
is what Opacus finds for Poisson sampling and δ = 10⁻⁵; batches are shuffled, as is common. The paper states neither δ
nor the clipping norm of those cells; ours is 1.

The sum of a batch's noisy directions is drawn as one normal vector that has its mean and its variance by coordinate, up
to terms of 1/d; with parts, as long as κ is small beside a part. A test compares it with the product's own sampler,
which takes minutes for a pass. Noise is of a seeded generator: images of the set are public, and nothing is private.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from opacus.accountants.utils import get_noise_multiplier
from scipy import special
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.environment import dataset, draw_records, provenance, require_test_split
from benchmarks.fixed_extractor import pixels
from benchmarks.kept_results import print_result
from datalens_service.data.dataset import Dataset
from datalens_service.methods.descent.noisy_directions import mean_cosine
from datalens_service.models.classifiers.architectures import build_network

DELTA: Final = 1e-5
NETWORKS: Final = ("lenet", "lenet_relu", "mlp")


@dataclass(frozen=True)
class Settings:
    """Hyperparameters, and how many records; none: all."""

    batch: int
    learning_rate: float
    passes: int
    records: int | None = None


PUBLISHED: Final = {
    ("lenet", "fashion_mnist"): Settings(100, 0.001, 30),
    ("mlp", "fashion_mnist"): Settings(256, 0.01, 30),
    ("lenet", "cifar10"): Settings(512, 0.001, 90),
    ("mlp", "cifar10"): Settings(128, 0.001, 25),
}
"""Table 1 of the paper."""


class RecordSum:
    """Sum over a batch of gradients of single records, each with a weight; rows of all weights are never made.

    Args:
        factors: For each layer (n, a), with the weight of its record, and (n, b): their outer product is a gradient.
    """

    def __init__(self, factors: list[tuple[Tensor, Tensor]]) -> None:
        self._factors = factors

    def total(self) -> Tensor:
        """(d,) sum of gradients."""
        return torch.cat([(left.T @ right).flatten() for left, right in self._factors])

    def squares(self) -> Tensor:
        """(d,) sum of their squares by coordinate."""
        return torch.cat([(left.square().T @ right.square()).flatten() for left, right in self._factors])

    def energy(self) -> Tensor:
        """Sum of their squared lengths."""
        return _squared_lengths(self._factors).sum()


@dataclass(frozen=True)
class DirectionalNoise:
    """Concentration, and how many coordinates are turned at once; 0: all. Lengths stay as they are."""

    kappa: float
    part: int = 0

    def turn(self, records: RecordSum, generator: torch.Generator) -> Tensor:
        """(d,) sum of noisy gradients."""
        total = records.total()
        cosine = self._cosine_of_parts() if self.part else mean_cosine(self.kappa, len(total))
        energies = self._energies_of_parts(records.squares()) if self.part else records.energy() / len(total)
        stddev = (energies * (1 - cosine**2)).sqrt()
        return cosine * total + stddev * torch.randn(len(total), generator=generator)

    def _cosine_of_parts(self) -> float:
        """Parts are small: the ratio of Bessel functions itself, where bounds of it would be tens of percent apart."""
        half = self.part / 2
        return float(special.ive(half, self.kappa) / special.ive(half - 1, self.kappa))

    def _energies_of_parts(self, squares: Tensor) -> Tensor:
        """(d,) means over each part; the last may be shorter."""
        return torch.cat([part.mean(dim=-1, keepdim=True).expand_as(part).flatten() for part in self._parts(squares)])

    def _parts(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        whole = len(squares) - len(squares) % self.part
        return squares[:whole].view(-1, self.part), squares[None, whole:]


@dataclass(frozen=True)
class GaussianNoise:
    """Noise of DP-SGD on a sum of gradients of length at most 1."""

    multiplier: float

    def turn(self, records: RecordSum, generator: torch.Generator) -> Tensor:
        """(d,) noisy sum."""
        total = records.total()
        return total + self.multiplier * torch.randn(len(total), generator=generator)


class RecordGradients:
    """Gradients of single records.

    Args:
        network: Of convolutions and linear layers; nothing else has weights.
    """

    def __init__(self, network: nn.Sequential) -> None:
        self._network = network
        self._seen: list[tuple[nn.Conv2d | nn.Linear, Tensor, Tensor]] = []
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.register_forward_hook(self._note)

    def gather(self, images: Tensor, labels: Tensor, *, scaled: bool) -> RecordSum:
        """Gradients of length 1 if they are `scaled`; else those longer than 1 are cut to it."""
        self._seen.clear()
        loss = functional.cross_entropy(self._network(images), labels, reduction="sum")
        errors = torch.autograd.grad(loss, [output for _, _, output in self._seen])
        factors = [_factors(layer, seen, error) for (layer, seen, _), error in zip(self._seen, errors, strict=True)]
        weights = _squared_lengths(factors).rsqrt()
        weights = torch.where(weights.isfinite(), weights, 0.0) if scaled else weights.clamp(max=1.0)
        return RecordSum([(left * weights[:, None], right) for left, right in factors])

    def assign(self, gradient: Tensor) -> None:
        """Make (d,) numbers, in the order of sums, the gradients of the weights."""
        start = 0
        for layer, _, _ in self._seen:
            rows, columns = layer.weight.shape[0], layer.weight[0].numel() + 1
            matrix = gradient[start : start + rows * columns].view(rows, columns)
            layer.weight.grad = matrix[:, :-1].reshape(layer.weight.shape).clone()
            layer.bias.grad = matrix[:, -1].clone()
            start += rows * columns

    def _note(self, layer: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        self._seen.append((layer, inputs[0].detach(), output))


def _factors(layer: nn.Conv2d | nn.Linear, seen: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """(n, a) and (n, b): the outer product of two rows is a record's gradient by weights and, last, bias."""
    if isinstance(layer, nn.Linear):
        return error, functional.pad(seen, (0, 1), value=1.0)
    padding: Any = layer.padding
    patches = functional.unfold(seen, layer.kernel_size, padding=padding, stride=layer.stride)
    with_bias = functional.pad(patches, (0, 0, 0, 1), value=1.0)
    rows = error.flatten(2) @ with_bias.transpose(1, 2)
    return torch.ones(len(seen), 1), rows.flatten(1)


def _squared_lengths(factors: list[tuple[Tensor, Tensor]]) -> Tensor:
    """(n,) squared lengths of gradients."""
    return torch.stack([left.square().sum(dim=1) * right.square().sum(dim=1) for left, right in factors]).sum(dim=0)


@dataclass(frozen=True)
class Cell:
    """What is trained, and how: ε_V or ε_G, or neither."""

    dataset: str
    architecture: str
    settings: Settings
    gradients: str
    epsilon_v: float | None = None
    epsilon_g: float | None = None
    part: int | None = None

    def name(self) -> dict[str, Any]:
        """What tells its line from others."""
        names = asdict(self)
        return names.pop("settings") | names

    def _noise(self, num_records: int) -> DirectionalNoise | GaussianNoise | None:
        if self.epsilon_v is not None:
            return DirectionalNoise(self.epsilon_v / 2, self.part or 0)
        if self.epsilon_g is None:
            return None
        steps = self.settings.passes * -(-num_records // self.settings.batch)
        rate = self.settings.batch / num_records
        price = {"target_epsilon": self.epsilon_g, "target_delta": DELTA, "sample_rate": rate, "steps": steps}
        return GaussianNoise(get_noise_multiplier(**price, accountant="prv"))

    def learn(self, data: Dataset, seed: int) -> Iterator[nn.Sequential]:
        """The network after each pass."""
        network = build_network({"architecture": self.architecture}, data.schema, seed)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.settings.learning_rate)
        images, labels = pixels(data.train.images), torch.from_numpy(data.train.labels)
        order = torch.Generator().manual_seed(seed)
        step = self._choose_step(network, self._noise(len(labels)), torch.Generator().manual_seed(seed))
        for _ in range(self.settings.passes):
            for rows in torch.randperm(len(labels), generator=order).split(self.settings.batch):
                step(images[rows], labels[rows])
                optimizer.step()
            yield network

    def train(self, data: Dataset, seed: int) -> list[float]:
        """Percent of test images that are labelled correctly after each pass."""
        accuracies = []
        for network in self.learn(data, seed):
            accuracies.append(_accuracy(network, data))
            print(f"{self}, seed {seed}: {accuracies[-1]}", file=sys.stderr, flush=True)
        return accuracies

    def _choose_step(
        self, network: nn.Sequential, noise: DirectionalNoise | GaussianNoise | None, generator: torch.Generator
    ) -> Callable[[Tensor, Tensor], None]:
        """What gives the weights their gradients for a batch."""

        def find_mean(images: Tensor, labels: Tensor) -> None:
            network.zero_grad()
            functional.cross_entropy(network(images), labels).backward()

        def find_bounded(images: Tensor, labels: Tensor) -> None:
            records = gradients.gather(images, labels, scaled=self.gradients == "directions")
            total = records.total() if noise is None else noise.turn(records, generator)
            gradients.assign(total / len(labels))

        if self.gradients == "plain":
            return find_mean
        gradients = RecordGradients(network)
        return find_bounded


@torch.no_grad()
def _accuracy(network: nn.Sequential, data: Dataset) -> float:
    test = require_test_split(data)
    predicted = torch.cat([network(part).argmax(dim=1) for part in pixels(test.images).split(500)])
    return round(100 * float(np.mean(predicted.numpy() == test.labels)), 2)


def measure(cell: Cell, seeds: int) -> dict[str, Any]:
    """One cell of the table."""
    count, began = cell.settings.records, time.process_time()
    data = draw_records(dataset(cell.dataset), count, 0) if count else dataset(cell.dataset)
    runs = [cell.train(data, seed) for seed in range(seeds)]
    last = [accuracies[-1] for accuracies in runs]
    return {
        **cell.name(),
        "accuracies_by_pass": runs,
        "mean": statistics.mean(last),
        "spread": statistics.stdev(last) if len(last) > 1 else None,
        "processor_seconds": round((time.process_time() - began) / seeds, 1),
    }


def _cells(options: argparse.Namespace) -> Iterator[Cell]:
    changed = {name: getattr(options, name) for name in ("passes", "learning_rate", "records")}
    published = PUBLISHED[options.architecture.removesuffix("_relu"), options.dataset]
    settings = replace(published, **{name: value for name, value in changed.items() if value})
    bare = Cell(options.dataset, options.architecture, settings, options.gradients)
    yield from (replace(bare, epsilon_v=epsilon, part=options.part) for epsilon in options.epsilon_v)
    yield from (replace(bare, epsilon_g=epsilon) for epsilon in options.epsilon_g)
    if not options.epsilon_v and not options.epsilon_g:
        yield bare


def main() -> None:
    parser = argparse.ArgumentParser(description="Table 2 of directional privacy.")
    parser.add_argument("--dataset", default="fashion_mnist", choices=["fashion_mnist", "cifar10"])
    parser.add_argument("--architecture", default="mlp", choices=NETWORKS)
    parser.add_argument("--gradients", default="directions", choices=["directions", "clipped", "plain"])
    parser.add_argument("--epsilon-v", type=float, nargs="*", default=[], help="With neither ε: no noise.")
    parser.add_argument("--epsilon-g", type=float, nargs="*", default=[])
    parser.add_argument("--part", type=int, default=0, help="coordinates that are turned at once; 0: all")
    parser.add_argument("--passes", type=int, help="in place of the paper's")
    parser.add_argument("--learning-rate", type=float, help="in place of the paper's")
    parser.add_argument("--records", type=int, help="that train; left out: all")
    parser.add_argument("--seeds", type=int, default=1)
    options, environment = parser.parse_args(), provenance()
    for cell in _cells(options):
        print_result({**measure(cell, options.seeds), "environment": environment})
        sys.stdout.flush()


if __name__ == "__main__":
    main()
