"""Table 2 of directional privacy (Faustini et al. 2023) on Fashion-MNIST: thirty passes for a cell, as JSON lines.

    python -m benchmarks.direction_passes --architecture mlp --gradients plain
    python -m benchmarks.direction_passes --architecture mlp
    python -m benchmarks.direction_passes --architecture mlp --epsilon-v 1 500 300000
    python -m benchmarks.direction_passes --architecture mlp --epsilon-v 1 --part 10

Batch, rate and passes are those of the paper's table 1, with Adam; widths of its networks are not stated there, ours
are those of the product. `plain` is the mean gradient, `directions` the mean of gradients that are scaled to length 1
one by one, `clipped` the mean of gradients of which only the longer ones are. The concentration is κ = ε_V/2. `--part`
splits a gradient into blocks of so many coordinates that are turned one by one and keep their lengths: the paper
partitions "sometimes" and does not say where.

The sum of a batch's noisy directions is drawn as one normal vector that has its mean and its variance by coordinate, up
to terms of 1/d; with parts, as long as κ is small beside a part. A test compares it with the product's own sampler,
which takes minutes for a pass. Noise is of a seeded generator: images of the set are public, and nothing is private.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.environment import dataset, provenance
from benchmarks.kept_results import print_result
from datalens_service.data.dataset import Dataset, Split
from datalens_service.methods.descent.noisy_directions import mean_cosine
from datalens_service.models.classifiers.architectures import build_network


@dataclass(frozen=True)
class Published:
    """Hyperparameters of table 1."""

    batch: int
    learning_rate: float
    passes: int = 30


PUBLISHED: Final = {
    "lenet": Published(100, 0.001),
    "lenet_relu": Published(100, 0.001),
    "mlp": Published(256, 0.01),
}


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
    """What is trained, and how."""

    architecture: str
    settings: Published
    gradients: str
    noise: DirectionalNoise | None = None

    def train(self, data: Dataset, seed: int) -> list[float]:
        """Percent of test images that are labelled correctly after each pass."""
        network = build_network({"architecture": self.architecture}, data.schema, seed)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.settings.learning_rate)
        step = self._choose_step(network, torch.Generator().manual_seed(seed))
        (images, labels), order = _tensors(data.train), torch.Generator().manual_seed(seed)
        accuracies = []
        for _ in range(self.settings.passes):
            for rows in torch.randperm(len(labels), generator=order).split(self.settings.batch):
                step(images[rows], labels[rows])
                optimizer.step()
            accuracies.append(_accuracy(network, data))
            print(f"{self}, seed {seed}: {accuracies[-1]}", file=sys.stderr, flush=True)
        return accuracies

    def _choose_step(self, network: nn.Sequential, generator: torch.Generator) -> Callable[[Tensor, Tensor], None]:
        """What gives the weights their gradients for a batch."""

        def find_mean(images: Tensor, labels: Tensor) -> None:
            network.zero_grad()
            functional.cross_entropy(network(images), labels).backward()

        def find_bounded(images: Tensor, labels: Tensor) -> None:
            records = gradients.gather(images, labels, scaled=self.gradients == "directions")
            total = records.total() if self.noise is None else self.noise.turn(records, generator)
            gradients.assign(total / len(labels))

        if self.gradients == "plain":
            return find_mean
        gradients = RecordGradients(network)
        return find_bounded


def _tensors(split: Split) -> tuple[Tensor, Tensor]:
    images = torch.from_numpy(np.ascontiguousarray(split.images.transpose(0, 3, 1, 2)))
    return images.float() / 255, torch.from_numpy(split.labels)


@torch.no_grad()
def _accuracy(network: nn.Sequential, data: Dataset) -> float:
    if data.test is None:
        raise SystemExit("the dataset has no test split")
    images, labels = _tensors(data.test)
    predicted = torch.cat([network(part).argmax(dim=1) for part in images.split(500)])
    return round(100 * (predicted == labels).double().mean().item(), 2)


def measure(data: Dataset, cell: Cell, seeds: int) -> dict[str, Any]:
    """One cell of the table."""
    began = time.process_time()
    runs = [cell.train(data, seed) for seed in range(seeds)]
    last = [accuracies[-1] for accuracies in runs]
    return {
        "architecture": cell.architecture,
        "gradients": cell.gradients,
        "epsilon_v": 2 * cell.noise.kappa if cell.noise else None,
        "part": cell.noise.part if cell.noise else None,
        **asdict(cell.settings),
        "accuracies_by_pass": runs,
        "mean": statistics.mean(last),
        "spread": statistics.stdev(last) if len(last) > 1 else None,
        "processor_seconds": round((time.process_time() - began) / seeds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Table 2 of directional privacy.")
    parser.add_argument("--dataset", default="fashion_mnist", choices=["mnist", "fashion_mnist"])
    parser.add_argument("--architecture", default="mlp", choices=list(PUBLISHED))
    parser.add_argument("--gradients", default="directions", choices=["directions", "clipped", "plain"])
    parser.add_argument("--epsilon-v", type=float, nargs="*", default=[None], help="Left out: no noise.")
    parser.add_argument("--part", type=int, default=0, help="coordinates that are turned at once; 0: all")
    parser.add_argument("--passes", type=int, default=30)
    parser.add_argument("--learning-rate", type=float, help="in place of the paper's")
    parser.add_argument("--seeds", type=int, default=1)
    options, environment = parser.parse_args(), provenance()
    published, data = PUBLISHED[options.architecture], dataset(options.dataset)
    settings = Published(published.batch, options.learning_rate or published.learning_rate, options.passes)
    for epsilon_v in options.epsilon_v:
        noise = None if epsilon_v is None else DirectionalNoise(epsilon_v / 2, options.part)
        cell = Cell(options.architecture, settings, options.gradients, noise)
        line = {"dataset": options.dataset, **measure(data, cell, options.seeds), "environment": environment}
        print_result(line)


if __name__ == "__main__":
    main()
