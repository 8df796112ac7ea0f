"""Speed of the teacher ensemble: `python -m benchmarks.engine`.

`--device cuda` measures a graphics processor. On a machine that does other work, OMP_NUM_THREADS=1 and
`--processor-time`: threads that wait for each other measure the scheduler, and so does the clock on the wall.

Every ratio compares two things timed in this run. One step is what a vote needs at least: one optimiser step of all
teachers, then every teacher's gradients for the synthetic images it votes on. Images are MNIST's size, 15 records in
a batch; dense teachers as in the preset `balanced` (10 groups, 2 synthetic images each), conv teachers as in `paper`
(one group, 15 synthetic images). Each time is the least of `steps` repetitions after one that is not counted: other
work of the machine only adds to it.

`loop` is one torch module and one torch.optim.Adam per teacher, handled one after another; where fewer were timed, its
seconds are scaled to all. `fraction_of_matmul_peak` compares a training step with its matrix products alone, by the
best of torch.bmm over all teachers, over blocks, and over one block again and again that stays in the cache.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
from torch import Tensor

from benchmarks.clock import Clock
from benchmarks.environment import provenance
from benchmarks.kept_results import print_result
from benchmarks.plain_loop import HIDDEN, MAPS, MODULES, UNITS, plain_loop
from datalens_service.data.dataset import Schema
from datalens_service.models.teachers.base import reduced_precision_products
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.partitions import partition_teachers

SCHEMA = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
CLASSES, DIMENSIONS, RECORDS = 10, 784, 15
GROUPS = {"dense": (10, 2), "conv": (1, 15)}
"""Groups of synthetic images and images of each."""
LARGEST = {"cpu": 2**24, "cuda": 2**31}
"""Numbers of a tensor whose product is timed alone."""


def batches(architecture: str, teachers: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Records of all teachers, and synthetic images of all groups."""
    generator = torch.Generator().manual_seed(0)
    groups, images = GROUPS[architecture]
    drawn = (
        torch.randint(0, 256, (teachers, RECORDS, DIMENSIONS), dtype=torch.uint8, generator=generator),
        torch.randint(CLASSES, (teachers, RECORDS), generator=generator),
        torch.rand(groups, images, DIMENSIONS, generator=generator),
        torch.randint(CLASSES, (groups, images), generator=generator),
    )
    real, labels, synthetic, classes = (value.to(device) for value in drawn)
    return real, labels, synthetic, classes


def ensemble_of(architecture: str, teachers: int, device: str) -> TeacherEnsemble:
    """As a job makes it."""
    partitions = partition_teachers(teachers, GROUPS[architecture][0])
    return TeacherEnsemble(architecture, teachers, SCHEMA, device, 0, partitions=partitions)


def gradients(ensemble: TeacherEnsemble, images: Tensor, labels: Tensor) -> None:
    """Every group's teachers for the images of the group; nothing is kept."""
    run = ensemble.num_teachers // len(images)
    for group in range(len(images)):
        for _ in ensemble.image_gradients(images[group], labels[group], slice(group * run, (group + 1) * run)):
            pass


def products(architecture: str) -> list[tuple[int, int, int]]:
    """(rows, inner, columns) of one teacher's matrix products in a training step, the output layer left out."""
    batch = RECORDS + GROUPS[architecture][1]
    layers = [(HIDDEN, DIMENSIONS, batch)]
    if architecture == "conv":
        first, second = 1 + CLASSES, MAPS + CLASSES
        layers = [(first, 25, 196 * batch), (second, first * 25, 49 * batch), (UNITS, second * 49, batch)]
    shapes = []
    for number, (outputs, inputs, columns) in enumerate(layers):
        shapes += [(outputs, inputs, columns), (outputs, columns, inputs)]
        # No gradient by the images themselves.
        shapes += [(inputs, outputs, columns)] if number else []
    return shapes


def product_seconds(shape: tuple[int, int, int], teachers: int, block: int, clock: Clock) -> float:
    """Best time of one product of all teachers: in one call, by blocks, or with one block in the cache; two layouts."""
    rows, inner, columns = shape
    # Many large products are timed on fewer teachers and scaled.
    largest = LARGEST["cuda" if clock.on_gpu else "cpu"]
    blocks = max(1, min(teachers, largest // max(rows * inner, inner * columns, rows * columns)) // block)
    count = blocks * block
    left, out = (
        torch.rand(count, rows, inner, device=clock.device),
        torch.empty(count, rows, columns, device=clock.device),
    )

    def by_blocks(right: Tensor, stride: int) -> None:
        for first in range(0, count, block):
            part = slice(first * stride, first * stride + block)
            torch.bmm(left[part], right[part], out=out[part])

    times = []
    for transposed in (False, True):
        right = torch.rand(count, columns, inner, device=clock.device).mT if transposed else None
        right = torch.rand(count, inner, columns, device=clock.device) if right is None else right
        times.append(clock.seconds(lambda right=right: torch.bmm(left, right, out=out)))
        for stride in (0, 1):
            work = lambda right=right, stride=stride: by_blocks(right, stride)  # noqa: E731
            times.append(clock.seconds(work))
    return min(times) * teachers / count


def speed(architecture: str, teachers: int, clock: Clock) -> dict[str, Any]:
    """The ensemble against the loop and against its own matrix products."""
    batch = batches(architecture, teachers, clock.device)
    real, labels, images, classes = batch
    ensemble = ensemble_of(architecture, teachers, clock.device)
    train = clock.seconds(lambda: ensemble.train_step(real, labels, images, classes))
    gradient = clock.seconds(lambda: gradients(ensemble, images, classes))
    group = len(partition_teachers(teachers, len(images))[0])
    block = min(ensemble.teachers_per_block(RECORDS + images.shape[1]), group)
    plain = plain_loop(architecture, SCHEMA, batch, clock)
    with reduced_precision_products(torch.device(clock.device)):
        alone = sum(product_seconds(shape, teachers, block, clock) for shape in products(architecture))
    return {
        "block": block,
        "train_seconds": train,
        "gradient_seconds": gradient,
        "loop": plain,
        "speedup_over_loop": (plain["train_seconds"] + plain["gradient_seconds"]) / (train + gradient),
        "fraction_of_matmul_peak": alone / train,
    }


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    """All figures of this run."""
    architecture, clock = chosen.architecture, Clock(chosen.device, chosen.steps, chosen.processor_time)
    run = {
        **provenance(),
        "torch": torch.__version__,
        "device": chosen.device,
        "gpu": torch.cuda.get_device_name(chosen.device) if clock.on_gpu else None,
        "processor_time": chosen.processor_time,
        "load_average": os.getloadavg()[0],
        "threads": torch.get_num_threads(),
        "architecture": architecture,
        "teachers": chosen.teachers,
        "steps": chosen.steps,
    }
    return run | speed(architecture, chosen.teachers, clock)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Speed of the teacher ensemble.")
    parser.add_argument("--teachers", type=int, default=4000)
    parser.add_argument("--architecture", choices=sorted(MODULES), default="dense")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, …")
    parser.add_argument("--steps", type=int, default=5, help="repetitions of every measurement")
    parser.add_argument("--processor-time", action="store_true", help="count the time that the processor gave")
    print_result(measured(parser.parse_args()))


if __name__ == "__main__":
    main()
