"""Stacked teacher networks against `torch.func`: `python -m benchmarks.stacked_networks`.

Both sides compute the direction of every teacher for every synthetic image, and train every teacher by one Adam step.
The other side is what `torch.func` offers for ensembles: a module of one network, `functional_call` and `vmap`. Prints
JSON: processor time on one thread, and the Euclidean norm of the difference of the directions relative to theirs.
"""

from __future__ import annotations

import argparse
import json

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from benchmarks.clock import Clock
from benchmarks.environment import provenance
from datalens_service.data.dataset import Schema
from datalens_service.models.adam import AdamState, adam_step
from datalens_service.models.teachers.ensemble import TeacherEnsemble

SCHEMA = Schema(channels=1, height=28, width=28, class_names=tuple(map(str, range(10))), num_units=60_000)
IMAGES = 64
SLOPE = 0.2
PADDING = (1, 2, 1, 2)
TEACHERS = {"dense": 500, "conv": 20}


class PlainDense(nn.Module):
    """One dense teacher: image and label in, one logit out."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.input = nn.Linear(SCHEMA.dimensions + SCHEMA.num_classes, hidden)
        self.output = nn.Linear(hidden, 1)

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        """(B,) logits of (B, d) images with (B, C) one-hot labels."""
        hidden = functional.leaky_relu(self.input(torch.cat([images, classes], dim=1)), SLOPE)
        return self.output(hidden)[:, 0]


class PlainConv(nn.Module):
    """One convolutional teacher: the label is appended at every layer."""

    def __init__(self, maps: int = 32, hidden: int = 256) -> None:
        super().__init__()
        labels = SCHEMA.num_classes
        first = SCHEMA.channels + labels
        self.conv1 = nn.Conv2d(SCHEMA.channels + labels, first, 5, stride=2)
        self.conv2 = nn.Conv2d(first + labels, maps + labels, 5, stride=2)
        self.dense = nn.Linear((maps + labels) * 49 + labels, hidden)
        self.output = nn.Linear(hidden + labels, 1)

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        """(B,) logits of (B, d) images with (B, C) one-hot labels."""
        maps = images.view(-1, SCHEMA.channels, SCHEMA.height, SCHEMA.width)
        for layer in (self.conv1, self.conv2):
            constant = classes[:, :, None, None].expand(-1, -1, *maps.shape[2:])
            padded = functional.pad(torch.cat([maps, constant], dim=1), PADDING)
            maps = functional.leaky_relu(layer(padded), SLOPE)
        hidden = functional.leaky_relu(self.dense(torch.cat([maps.flatten(1), classes], dim=1)), SLOPE)
        return self.output(torch.cat([hidden, classes], dim=1))[:, 0]


PLAIN = {"dense": PlainDense, "conv": PlainConv}


class VmapEnsemble:
    """The same teachers by `vmap(functional_call)`."""

    def __init__(self, architecture: str, ensemble: TeacherEnsemble) -> None:
        modules = [PLAIN[architecture]() for _ in ensemble.local]
        self._module = PLAIN[architecture]()
        parameters, _ = stack_module_state(modules)
        self._state = AdamState.from_parameters({name: value.detach() for name, value in parameters.items()})
        _copy_weights(ensemble, self._state.parameters)

    def directions(self, images: Tensor, classes: Tensor) -> Tensor:
        """(N, S, d)."""

        def objective(images: Tensor, parameters: dict[str, Tensor]) -> Tensor:
            return functional.logsigmoid(functional_call(self._module, parameters, (images, classes))).sum()

        return vmap(grad(objective), in_dims=(None, 0))(images, self._state.parameters)

    def train_step(self, real: Tensor, real_classes: Tensor, synthetic: Tensor, classes: Tensor) -> None:
        """One Adam step."""

        def loss(parameters: dict[str, Tensor], real: Tensor, real_classes: Tensor) -> Tensor:
            inputs = torch.cat([real, synthetic]), torch.cat([real_classes, classes])
            logits = functional_call(self._module, parameters, inputs)
            fake = functional.logsigmoid(-logits[len(real) :]).mean()
            return -(functional.logsigmoid(logits[: len(real)]).mean() + fake)

        gradients = vmap(grad(loss))(self._state.parameters, real, real_classes)
        adam_step(self._state, gradients, 0, 1e-3, 0.5)


def _copy_weights(ensemble: TeacherEnsemble, parameters: dict[str, Tensor]) -> None:
    """The product's weights and label weights side by side, as one layer of a module has them."""
    held = {name: torch.from_numpy(value) for name, value in ensemble.state().items() if name.startswith("parameters/")}
    for name, target in parameters.items():
        layer, kind = name.split(".")
        value = held[f"parameters/{layer}.{kind}"]
        label = held.get(f"parameters/{layer}.label")
        if kind == "weight" and layer.startswith("conv") and label is not None:
            value = torch.cat([value.view(*target.shape[:2], -1, 5, 5), _kernels(label)], dim=2)
        elif kind == "weight" and label is not None:
            value = torch.cat([value, label], dim=2)
        target.copy_(value)


def _kernels(label: Tensor) -> Tensor:
    """(N, maps, taps, C) → (N, maps, C, 5, 5)."""
    return label.mT.unflatten(-1, (5, 5))


def compared(architecture: str, teachers: int, repetitions: int) -> dict[str, object]:
    """One row: both sides on the same weights and images."""
    generator = torch.Generator().manual_seed(0)
    ensemble = TeacherEnsemble(architecture, teachers, SCHEMA, "cpu", seed=0)
    other = VmapEnsemble(architecture, ensemble)
    images = torch.rand(IMAGES, SCHEMA.dimensions, generator=generator)
    real = torch.rand(teachers, IMAGES, SCHEMA.dimensions, generator=generator)
    labels = torch.arange(IMAGES) % SCHEMA.num_classes
    classes = functional.one_hot(labels, SCHEMA.num_classes).float()
    ours, theirs = torch.cat(list(ensemble.image_gradients(images, labels))), other.directions(images, classes)
    clock = Clock(repetitions=repetitions, processor_time=True)
    stacked = labels.expand(teachers, -1), classes.expand(teachers, -1, -1)
    seconds = {
        "directions_stacked": clock.seconds(lambda: list(ensemble.image_gradients(images, labels))),
        "directions_vmap": clock.seconds(lambda: other.directions(images, classes)),
        "train_step_stacked": clock.seconds(lambda: ensemble.train_step(real, stacked[0], images, labels)),
        "train_step_vmap": clock.seconds(lambda: other.train_step(real, stacked[1], images, classes)),
    }
    return {
        "architecture": architecture,
        "teachers": teachers,
        "images": IMAGES,
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "directions_times_faster": round(seconds["directions_vmap"] / seconds["directions_stacked"], 2),
        "train_step_times_faster": round(seconds["train_step_vmap"] / seconds["train_step_stacked"], 2),
        "relative_difference": float((ours - theirs).norm() / ours.norm()),
    }


def main() -> None:
    """Measure both architectures on one thread and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teachers", type=int, help="of both architectures; by default 500 dense and 20 conv")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [compared(name, arguments.teachers or count, arguments.repetitions) for name, count in TEACHERS.items()]
    print(json.dumps({**provenance(), "torch": torch.__version__, "threads": 1, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
