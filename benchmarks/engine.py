"""Speed of the teacher ensemble and of its votes: `python -m benchmarks.engine`.

`--device cuda` measures a graphics processor. On a machine that does other work, OMP_NUM_THREADS=1 and
`--processor-time`: threads that wait for each other measure the scheduler, and so does the clock on the wall.

Every ratio compares two things timed in this run. One step is what a vote needs at least: one optimiser step of all
teachers, then every teacher's gradients for the synthetic images it votes on. Images are MNIST's size, 15 records in
a batch; dense teachers as in the preset `balanced` (10 groups, 2 synthetic images each), conv teachers as in `paper`
(one group, 15 synthetic images). Each time is the least of `steps` repetitions after one that is not counted: other
work of the machine only adds to it.

Keys of the JSON, beside commit, machine and versions:

    device, gpu                    where teachers were; name of the graphics processor, null without one
    processor_time                 whether seconds are those that the processor gave to this process
    load_average                   of the machine in the minute before; a busy one makes all figures worse
    threads, architecture, teachers, steps    of this run
    block                          teachers handled at once
    start_seconds                  to draw all initial weights
    train_seconds, gradient_seconds           both parts of one step of the ensemble
    steps_per_second               of both parts together
    peak_memory_gib                largest memory in them: of the process, libraries and records included, or of the GPU
    loop                           one torch module and one torch.optim.Adam per teacher, handled one after another:
        teachers_timed, scaled     how many were timed; true if times are theirs times teachers / teachers_timed
        train_seconds, gradient_seconds       of one step of all teachers
    speedup_over_loop              loop's time of a step / the ensemble's
    train_flops                    floating-point operations in the matrix products of one training step
    train_flops_per_second         those / train_seconds
    matmul_flops_per_second        of the same products alone, by the best of torch.bmm over all teachers, over blocks,
                                   and over one block again and again that stays in the cache
    fraction_of_matmul_peak        train_flops_per_second / matmul_flops_per_second
    product_seconds                train_flops / matmul_flops_per_second: these products alone
    traffic_seconds                to read and write as many numbers in memory as weights and both moments are, once
    votes                          TopAgg with the authors' k=200 on 784 coordinates:
        votes_per_second           teachers' votes for an image, encoded, checked and summed
        bytes_per_second           of gradients read
        copy_bytes_per_second      read and written by a copy of the same gradients
        fraction_of_memory_bandwidth          bytes_per_second / copy_bytes_per_second
    growth                         seconds of a training step and peak memory by number; conv on a GPU only
    growth_exponent                slope of log seconds over log teachers; 1 is linear
    job                            with --job: a whole DataLens run at ε = 1 with the authors' settings on 60,000 random
                                   images, from the records in memory to the generator: its votes and its seconds
"""

from __future__ import annotations

import argparse
import gc
import math
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.clock import Clock
from benchmarks.environment import PARTITION_KEY, provenance
from benchmarks.kept_results import print_result
from benchmarks.plain_loop import HIDDEN, MAPS, MODULES, UNITS, plain_loop
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms import TopAgg
from datalens_service.methods import DataLens, ExecutionOptions
from datalens_service.models.teachers.base import reduced_precision_products
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.networks import ARCHITECTURES
from datalens_service.models.teachers.partitions import partition_teachers
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

SCHEMA = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
CLASSES, DIMENSIONS, RECORDS = 10, 784, 15
GROUPS = {"dense": (10, 2), "conv": (1, 15)}
"""Groups of synthetic images and images of each."""
GROWTH = (250, 500, 1000, 2000, 4000, 8000)
VOTERS, VOTED_ON = 1000, 15
LARGEST = {"cpu": 2**24, "cuda": 2**31}
"""Numbers of a tensor whose product is timed alone."""
LARGEST_COPY = 2**28
"""Numbers that are read and written at most; more are scaled."""


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


def traffic_seconds(architecture: str, teachers: int, clock: Clock) -> float:
    """What no optimiser step can do without: weights and both moments pass through memory, which no cache holds."""
    shapes = ARCHITECTURES[architecture](SCHEMA).shapes().values()
    needed = 3 * teachers * sum(math.prod(shape) for shape in shapes)
    numbers = torch.ones(min(needed, LARGEST_COPY), device=clock.device)
    return clock.seconds(lambda: numbers.mul_(1.0)) * needed / len(numbers)


def ensemble_times(architecture: str, batch: tuple[Tensor, ...], clock: Clock) -> dict[str, Any]:
    """Of all teachers together."""
    clock.forget_peak()
    began = clock.now()
    ensemble = ensemble_of(architecture, len(batch[0]), clock.device)
    start = clock.now() - began
    real, labels, images, classes = batch
    train = clock.seconds(lambda: ensemble.train_step(real, labels, images, classes))
    gradient = clock.seconds(lambda: gradients(ensemble, images, classes))
    return {
        "block": min(
            ensemble.teachers_per_block(RECORDS + images.shape[1]), len(partition_teachers(len(real), len(images))[0])
        ),
        "start_seconds": start,
        "train_seconds": train,
        "gradient_seconds": gradient,
        "steps_per_second": 1 / (train + gradient),
        "peak_memory_gib": clock.peak_memory_gib(),
    }


def speed(architecture: str, teachers: int, clock: Clock) -> dict[str, Any]:
    """The ensemble against the loop and against its own matrix products."""
    batch = batches(architecture, teachers, clock.device)
    timings = ensemble_times(architecture, batch, clock)
    plain = plain_loop(architecture, SCHEMA, batch, clock)
    shapes = products(architecture)
    flops = teachers * sum(2 * rows * inner * columns for rows, inner, columns in shapes)
    with reduced_precision_products(torch.device(clock.device)):
        alone = sum(product_seconds(shape, teachers, timings["block"], clock) for shape in shapes)
    return {
        **timings,
        "loop": plain,
        "speedup_over_loop": (plain["train_seconds"] + plain["gradient_seconds"]) * timings["steps_per_second"],
        "train_flops": flops,
        "train_flops_per_second": flops / timings["train_seconds"],
        "matmul_flops_per_second": flops / alone,
        "fraction_of_matmul_peak": alone / timings["train_seconds"],
        "product_seconds": alone,
        "traffic_seconds": traffic_seconds(architecture, teachers, clock),
    }


def growth(architecture: str, clock: Clock) -> dict[str, Any]:
    """Training steps by the number of teachers."""
    rows = []
    for teachers in GROWTH:
        gc.collect()
        clock.forget_peak()
        ensemble, batch = (
            ensemble_of(architecture, teachers, clock.device),
            batches(architecture, teachers, clock.device),
        )
        step = clock.seconds(lambda ensemble=ensemble, batch=batch: ensemble.train_step(*batch))
        rows.append({"teachers": teachers, "train_seconds": step, "peak_memory_gib": clock.peak_memory_gib()})
        del ensemble, batch
    slope = np.polyfit(np.log(GROWTH), np.log([row["train_seconds"] for row in rows]), 1)[0]
    return {"growth": rows, "growth_exponent": float(slope)}


def votes(clock: Clock) -> dict[str, Any]:
    """Votes against the memory's bandwidth; gradients in blocks as the ensemble makes them."""
    mechanism = TopAgg(
        num_teachers=VOTERS, images=VOTED_ON, dimensions=DIMENSIONS, clip=1e-5, stochastic=True, threshold=0.7,
        noise_stddev=5000, top_k=200,
    )  # fmt: skip
    sampled = torch.randn(VOTERS, VOTED_ON, DIMENSIONS, device=clock.device) * 1e-5
    copied = torch.empty_like(sampled)
    block = VOTERS if clock.on_gpu else 100
    voting = clock.seconds(lambda: mechanism.exact_sum(sampled.split(block)))
    read, both = sampled.nbytes / voting, 2 * sampled.nbytes / clock.seconds(lambda: copied.copy_(sampled))
    return {
        "votes_per_second": VOTERS * VOTED_ON / voting,
        "bytes_per_second": read,
        "copy_bytes_per_second": both,
        "fraction_of_memory_bandwidth": read / both,
    }


def job(architecture: str, teachers: int, clock: Clock) -> dict[str, Any]:
    """A whole run; how long it takes does not depend on what the images show."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (SCHEMA.num_units, SCHEMA.height, SCHEMA.width, 1), dtype=np.uint8)
    records = Split(images, rng.integers(CLASSES, size=len(images)))
    method = DataLens.model_validate(
        {"teacher": architecture, "num_teachers": teachers, "noise_stddev": 5000, "top_k": 200}
    )
    spec = TrainingSpec(method=method, epsilon=1.0, delta=1e-5)
    clock.forget_peak()
    began = clock.now()
    result = run(
        spec,
        Dataset(SCHEMA, records, None, PARTITION_KEY),
        account=UnchargedAccount(),
        options=ExecutionOptions(clock.device),
    )
    passed = clock.now() - began
    return {"votes": result.steps_made, "seconds": passed, "peak_memory_gib": clock.peak_memory_gib()}


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    """All figures of this run."""
    architecture, clock = chosen.architecture, Clock(chosen.device, chosen.steps, chosen.processor_time)
    result = {
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
    result |= speed(architecture, chosen.teachers, clock)
    result |= {"votes": votes(clock)}
    result |= growth(architecture, clock) if architecture == "dense" or clock.on_gpu else {}
    result |= {"job": job(architecture, chosen.teachers, clock)} if chosen.job else {}
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Speed of the teacher ensemble and of its votes.")
    parser.add_argument("--teachers", type=int, default=4000)
    parser.add_argument("--architecture", choices=sorted(MODULES), default="dense")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, …")
    parser.add_argument("--steps", type=int, default=5, help="repetitions of every measurement")
    parser.add_argument("--processor-time", action="store_true", help="count the time that the processor gave")
    parser.add_argument("--job", action="store_true", help="also time a whole job")
    print_result(measured(parser.parse_args()))


if __name__ == "__main__":
    main()
