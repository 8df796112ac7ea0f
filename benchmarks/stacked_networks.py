"""Teachers written for a block at once, against `torch.func`: `python -m benchmarks.stacked_networks`.

Prints JSON: processor milliseconds of one forward and backward pass by all weights of N teachers on one thread, ours
and `vmap(grad(functional_call))` over an ordinary module of the same size; `ratio` is the second by the first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from benchmarks.environment import provenance
from datalens_service.data.dataset import Schema
from datalens_service.models.teachers.networks import ARCHITECTURES

SCHEMA = Schema(channels=1, height=28, width=28, class_names=tuple(str(label) for label in range(10)), num_units=60_000)
REPEATS = 9
PRIVATE, SHARED = 8, 32
TEACHERS = {"dense": 500, "conv": 20}


class DenseModule(nn.Module):
    """The dense teacher as a module: one hidden layer, the label at the input."""

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(784 + 10, 16)
        self.output = nn.Linear(16, 1)

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        """Logits (B,) of images (B, d) with one-hot labels (B, C)."""
        hidden = functional.leaky_relu(self.input(torch.cat([images, classes], dim=1)), 0.2)
        return self.output(hidden)[:, 0]


class ConvModule(nn.Module):
    """The convolutional teacher as a module: label maps as inputs of every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1 + 10, 11, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(11 + 10, 42, 5, stride=2, padding=2)
        self.dense = nn.Linear(42 * 7 * 7 + 10, 256)
        self.output = nn.Linear(256 + 10, 1)

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        """Logits (B,) of images (B, d) with one-hot labels (B, C)."""
        maps = images.view(-1, 1, 28, 28)
        for layer in (self.conv1, self.conv2):
            planes = classes[:, :, None, None].expand(-1, -1, *maps.shape[2:])
            maps = functional.leaky_relu(layer(torch.cat([maps, planes], dim=1)), 0.2)
        hidden = functional.leaky_relu(self.dense(torch.cat([maps.flatten(1), classes], dim=1)), 0.2)
        return self.output(torch.cat([hidden, classes], dim=1))[:, 0]


MODULES: dict[str, type[nn.Module]] = {"dense": DenseModule, "conv": ConvModule}


def milliseconds(step: Callable[[], object]) -> float:
    """Median processor time of a call, after one that is not counted."""
    step()
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        step()
        times.append(time.process_time() - began)
    return round(1000 * float(np.median(times)), 2)


def loss_of_one(logits: Tensor) -> Tensor:
    """Cross-entropy of one teacher: private images first, shared ones behind."""
    return -(
        functional.logsigmoid(logits[..., :PRIVATE]).mean(-1) + functional.logsigmoid(-logits[..., PRIVATE:]).mean(-1)
    )


def stacked_step(name: str, private: Tensor, shared: Tensor, classes: Tensor) -> Callable[[], object]:
    """Ours: parameters stacked by hand, products of matrices over the block."""
    network = ARCHITECTURES[name](SCHEMA)
    shapes = network.shapes()
    leaves = {key: torch.randn(len(private), *shape).mul_(0.02).requires_grad_() for key, shape in shapes.items()}

    def step() -> object:
        features = network.first(leaves, private, shared, classes.mT)
        return torch.autograd.grad(loss_of_one(network.rest(leaves, features, classes.mT)).sum(), list(leaves.values()))

    return step


def vmap_step(name: str, private: Tensor, shared: Tensor, classes: Tensor) -> Callable[[], object]:
    """`torch.func`: gradient of a functional call, vectorised over stacked parameters."""
    module = MODULES[name]()
    stacked = {key: torch.randn(len(private), *value.shape).mul_(0.02) for key, value in module.named_parameters()}

    def loss(parameters: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return loss_of_one(functional_call(module, parameters, (torch.cat([images, shared]), labels)))

    gradients = vmap(grad(loss))
    return lambda: gradients(stacked, private, classes)


def measure(name: str) -> dict[str, object]:
    """One row of the table."""
    teachers = TEACHERS[name]
    private = torch.rand(teachers, PRIVATE, SCHEMA.dimensions)
    shared = torch.rand(SHARED, SCHEMA.dimensions)
    labels = torch.randint(0, SCHEMA.num_classes, (teachers, PRIVATE + SHARED))
    classes = functional.one_hot(labels, SCHEMA.num_classes).to(torch.float32)
    ours, theirs = (milliseconds(build(name, private, shared, classes)) for build in (stacked_step, vmap_step))
    return {
        "network": name,
        "teachers": teachers,
        "private": PRIVATE,
        "shared": SHARED,
        "stacked_ms": ours,
        "vmap_ms": theirs,
        "ratio": round(theirs / ours, 2),
    }


def main() -> None:
    """Print the rows of both networks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [measure(name) for name in TEACHERS]
    print(json.dumps({**provenance(), "torch": torch.__version__, "threads": 1, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
