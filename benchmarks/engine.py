"""Speed of the teacher ensemble and of its votes: `python -m benchmarks.engine`.

On a machine that does other work, OMP_NUM_THREADS=1: threads that wait for each other measure the scheduler.

Every ratio compares two things timed in this run. One step is what a vote needs at least: one optimiser step of all
teachers, then every teacher's gradients for the synthetic images it votes on. Images are MNIST's size, 15 records in
a batch; dense teachers as in the preset `balanced` (10 groups, 2 synthetic images each), conv teachers as in `paper`
(one group, 15 synthetic images). Each time is the least of `steps` repetitions after one that is not counted: other
work of the machine only adds to it.

Keys of the JSON, beside commit, machine and versions:

    load_average                   of the machine in the minute before; a busy one makes all figures worse
    threads, architecture, teachers, steps    of this run
    on_disk                        whether the ensemble exceeded its memory limit and lay in a file
    train_seconds, gradient_seconds           both parts of one step of the ensemble
    steps_per_second               of both parts together
    peak_memory_gib                largest resident memory of the process in them, libraries and records included
    loop                           one torch module and one torch.optim.Adam per teacher, handled one after another:
        teachers_timed, scaled     how many were timed; true if times are theirs times teachers / teachers_timed
        train_seconds, gradient_seconds       of one step of all teachers
    speedup_over_loop              loop's time of a step / the ensemble's
    train_flops                    floating-point operations in the matrix products of one training step
    train_flops_per_second         those / train_seconds
    matmul_flops_per_second        of the same products alone, by the best of torch.bmm over all teachers, over blocks,
                                   and over one block again and again that stays in the cache
    fraction_of_matmul_peak        train_flops_per_second / matmul_flops_per_second
    growth                         dense only: seconds of a training step and peak memory of the process by number
    growth_exponent                slope of log seconds over log teachers; 1 is linear
    votes                          TopAgg with the authors' k=200 on 784 coordinates:
        votes_per_second           teachers' votes for an image, encoded, checked and summed
        bytes_per_second           of gradients read
        copy_bytes_per_second      read and written by a copy of the same gradients
        fraction_of_memory_bandwidth          bytes_per_second / copy_bytes_per_second
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.environment import provenance
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import TopAgg
from datalens_service.models.teachers import TeacherEnsemble

SCHEMA = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
CLASSES, DIMENSIONS, RECORDS = 10, 784, 15
GROUPS = {"dense": (10, 2), "conv": (1, 15)}
"""Groups of synthetic images and images of each."""
HIDDEN, MAPS, UNITS = 16, (11, 42), 256
LOOP_TEACHERS = 100
GROWTH = (250, 500, 1000, 2000, 4000, 8000)
VOTERS, VOTED_ON = 1000, 15


class DenseLoop(nn.Module):
    """The ensemble's dense teacher as an ordinary module."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.output = nn.Linear(DIMENSIONS + CLASSES, HIDDEN), nn.Linear(HIDDEN, 1)

    def forward(self, images: Tensor, one_hot: Tensor) -> Tensor:
        return self.output(functional.leaky_relu(self.input(torch.cat([images, one_hot], dim=1)), 0.2))


class ConvLoop(nn.Module):
    """The ensemble's conv teacher as an ordinary module: labels as constant maps, appended at every layer."""

    def __init__(self) -> None:
        super().__init__()
        first, second = MAPS
        self.conv1 = nn.Conv2d(1 + CLASSES, first, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(first + CLASSES, second, 5, stride=2, padding=2)
        self.dense = nn.Linear(second * 49 + CLASSES, UNITS)
        self.output = nn.Linear(UNITS + CLASSES, 1)

    def forward(self, images: Tensor, one_hot: Tensor) -> Tensor:
        features = images.view(-1, 1, 28, 28)
        for layer in (self.conv1, self.conv2):
            maps = one_hot[:, :, None, None].expand(-1, -1, *features.shape[2:])
            features = functional.leaky_relu(layer(torch.cat([features, maps], dim=1)), 0.2)
        hidden = functional.leaky_relu(self.dense(torch.cat([features.flatten(1), one_hot], dim=1)), 0.2)
        return self.output(torch.cat([hidden, one_hot], dim=1))


MODULES: dict[str, Callable[[], nn.Module]] = {"dense": DenseLoop, "conv": ConvLoop}


def seconds(work: Callable[[], object], repetitions: int) -> float:
    """Least time of a call after one that is not counted."""
    work()
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def batches(architecture: str, teachers: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Records of all teachers, and synthetic images of all groups."""
    generator = torch.Generator().manual_seed(0)
    groups, images = GROUPS[architecture]
    return (
        torch.randint(0, 256, (teachers, RECORDS, DIMENSIONS), dtype=torch.uint8, generator=generator),
        torch.randint(CLASSES, (teachers, RECORDS), generator=generator),
        torch.rand(groups, images, DIMENSIONS, generator=generator),
        torch.randint(CLASSES, (groups, images), generator=generator),
    )


def gradients(ensemble: TeacherEnsemble, images: Tensor, labels: Tensor) -> None:
    """Every group's teachers for the images of the group; nothing is kept."""
    run = ensemble.num_teachers // len(images)
    for group in range(len(images)):
        for _ in ensemble.image_gradients(images[group], labels[group], slice(group * run, (group + 1) * run)):
            pass


def loop_train(teacher: nn.Module, optimiser: torch.optim.Adam, real: list[Tensor], synthetic: list[Tensor]) -> None:
    """One step on binary cross-entropy: real → 1, synthetic → 0."""
    optimiser.zero_grad()
    for (images, one_hot), target in ((real, 1.0), (synthetic, 0.0)):
        logits = teacher(images, one_hot)
        functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target)).backward()
    optimiser.step()


def loop_gradient(teacher: nn.Module, images: Tensor, one_hot: Tensor) -> None:
    """Directions for the images."""
    leaf = images.clone().requires_grad_()
    torch.autograd.grad(functional.logsigmoid(teacher(leaf, one_hot)).sum(), leaf)


def loop(architecture: str, teachers: int, repetitions: int) -> dict[str, Any]:
    """Times of a step of the plain loop, scaled to all teachers."""
    timed = min(teachers, LOOP_TEACHERS)
    real, labels, images, classes = batches(architecture, timed)
    modules = [MODULES[architecture]() for _ in range(timed)]
    optimisers = [torch.optim.Adam(module.parameters(), lr=1e-3, betas=(0.5, 0.999)) for module in modules]
    one_hot = functional.one_hot(labels, CLASSES).float()
    synthetic = [images[0], functional.one_hot(classes[0], CLASSES).float()]

    def train() -> None:
        for number in range(timed):
            batch = [real[number].float() / 255, one_hot[number]]
            loop_train(modules[number], optimisers[number], batch, synthetic)

    scale = teachers / timed
    return {
        "teachers_timed": timed,
        "scaled": scale != 1,
        "train_seconds": seconds(train, repetitions) * scale,
        "gradient_seconds": seconds(lambda: [loop_gradient(one, *synthetic) for one in modules], repetitions) * scale,
    }


def products(architecture: str) -> list[tuple[int, int, int]]:
    """(rows, inner, columns) of one teacher's matrix products in a training step, the output layer left out."""
    batch = RECORDS + GROUPS[architecture][1]
    layers = [(HIDDEN, DIMENSIONS, batch)]
    if architecture == "conv":
        layers = [(MAPS[0], 25, 196 * batch), (MAPS[1], MAPS[0] * 25, 49 * batch), (UNITS, MAPS[1] * 49, batch)]
    found = []
    for number, (outputs, inputs, columns) in enumerate(layers):
        found += [(outputs, inputs, columns), (outputs, columns, inputs)]
        # No gradient by the images themselves.
        found += [(inputs, outputs, columns)] if number else []
    return found


def product_seconds(shape: tuple[int, int, int], teachers: int, block: int, repetitions: int) -> float:
    """Best time of one product of all teachers: in one call, by blocks, or with one block in the cache; two layouts."""
    rows, inner, columns = shape
    # At most 64 MiB a tensor: many conv teachers are timed on fewer and scaled.
    blocks = max(1, min(teachers, 2**24 // max(rows * inner, inner * columns, rows * columns)) // block)
    count = blocks * block
    left, out = torch.rand(count, rows, inner), torch.empty(count, rows, columns)

    def by_blocks(right: Tensor, stride: int) -> None:
        for first in range(0, count, block):
            part = slice(first * stride, first * stride + block)
            torch.bmm(left[part], right[part], out=out[part])

    times = []
    for right in (torch.rand(count, inner, columns), torch.rand(count, columns, inner).mT):
        times.append(seconds(lambda right=right: torch.bmm(left, right, out=out), repetitions))
        times += [
            seconds(lambda right=right, stride=stride: by_blocks(right, stride), repetitions) for stride in (0, 1)
        ]
    return min(times) * teachers / count


def speed(architecture: str, teachers: int, repetitions: int) -> dict[str, Any]:
    """The ensemble against the loop and against its own matrix products."""
    ensemble = TeacherEnsemble(architecture, teachers, SCHEMA, "cpu", 0)
    batch = batches(architecture, teachers)
    train = seconds(lambda: ensemble.train_step(*batch), repetitions)
    gradient = seconds(lambda: gradients(ensemble, *batch[2:]), repetitions)
    peak, plain = peak_memory_gib(), loop(architecture, teachers, repetitions)
    block = ensemble.teachers_per_block(RECORDS + batch[2].shape[1])
    shapes = products(architecture)
    flops = teachers * sum(2 * rows * inner * columns for rows, inner, columns in shapes)
    alone = sum(product_seconds(shape, teachers, min(block, teachers), repetitions) for shape in shapes)
    return {
        "on_disk": ensemble.on_disk,
        "train_seconds": train,
        "gradient_seconds": gradient,
        "steps_per_second": 1 / (train + gradient),
        "peak_memory_gib": peak,
        "loop": plain,
        "speedup_over_loop": (plain["train_seconds"] + plain["gradient_seconds"]) / (train + gradient),
        "train_flops": flops,
        "train_flops_per_second": flops / train,
        "matmul_flops_per_second": flops / alone,
        "fraction_of_matmul_peak": alone / train,
    }


def growth(repetitions: int) -> dict[str, Any]:
    """Training steps of dense teachers by their number."""
    rows = []
    for teachers in GROWTH:
        gc.collect()
        forget_peak()
        ensemble, batch = TeacherEnsemble("dense", teachers, SCHEMA, "cpu", 0), batches("dense", teachers)
        step = seconds(lambda ensemble=ensemble, batch=batch: ensemble.train_step(*batch), repetitions)
        rows.append({"teachers": teachers, "train_seconds": step, "peak_memory_gib": peak_memory_gib()})
        del ensemble, batch
    slope = np.polyfit(np.log(GROWTH), np.log([row["train_seconds"] for row in rows]), 1)[0]
    return {"growth": rows, "growth_exponent": float(slope)}


def votes(repetitions: int) -> dict[str, Any]:
    """Votes against the memory's bandwidth; gradients in blocks as the ensemble makes them."""
    mechanism = TopAgg(
        num_teachers=VOTERS, images=VOTED_ON, dimensions=DIMENSIONS, clip=1e-5, stochastic=True, threshold=0.7,
        noise_stddev=5000, top_k=200,
    )  # fmt: skip
    found = torch.randn(VOTERS, VOTED_ON, DIMENSIONS) * 1e-5
    copied = torch.empty_like(found)
    voting = seconds(lambda: mechanism.total(found.split(100)), repetitions)
    read, both = found.nbytes / voting, 2 * found.nbytes / seconds(lambda: copied.copy_(found), repetitions)
    return {
        "votes_per_second": VOTERS * VOTED_ON / voting,
        "bytes_per_second": read,
        "copy_bytes_per_second": both,
        "fraction_of_memory_bandwidth": read / both,
    }


def forget_peak() -> None:
    """Let the kernel count the largest resident memory from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory_gib() -> float:
    """Largest resident memory since then."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Speed of the teacher ensemble and of its votes.")
    parser.add_argument("--teachers", type=int, default=4000)
    parser.add_argument("--architecture", choices=sorted(MODULES), default="dense")
    parser.add_argument("--steps", type=int, default=5, help="repetitions of every measurement")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    chosen = parser.parse_args()
    asked = {"architecture": chosen.architecture, "teachers": chosen.teachers, "steps": chosen.steps}
    result = {**provenance(), "torch": torch.__version__, "load_average": os.getloadavg()[0]}
    result |= {"threads": torch.get_num_threads(), **asked}
    result |= speed(chosen.architecture, chosen.teachers, chosen.steps)
    result |= {"votes": votes(chosen.steps)}
    result |= growth(chosen.steps) if chosen.architecture == "dense" else {}
    text = json.dumps(result, indent=2)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
