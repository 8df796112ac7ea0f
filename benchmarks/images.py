"""Time and memory per step by the size of images: `python -m benchmarks.images`.

Every method that works makes some releases on random images of 28×28×1, 32×32×3 and 64×64×3; neither depends on what
the images show. A step of DataLens is two optimiser steps of all teachers, their gradients, the vote and the student's
update, with the authors' 15 images and k = 200; a step of guided is one gradient; the first one of either is not
counted. A step of the others is one release.

Keys of the JSON, beside commit, machine and versions:

    device, gpu, processor_time, load_average, threads, teachers, records      of this run
    rows: images                height×width×channels
          method                preset-like name: what votes, how shards are cut, what it starts from
          steps                 releases timed
          start_seconds         until the first release: shards, initial weights
          seconds_per_step      mean
          peak_memory_gib       largest memory: of the process, libraries and records included, or of the GPU
            refused               why the method does not take these images; null if it does
"""

from __future__ import annotations

import argparse
import gc
import os
from typing import Any

import torch

from benchmarks.clock import Clock
from benchmarks.environment import make_set, provenance
from benchmarks.kept_results import print_result
from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Dataset
from datalens_service.methods import DataLens, ExecutionOptions, Guided, Method, Mixture, Moments
from datalens_service.methods.driver import Training
from datalens_service.methods.script import RunInputs
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

SHAPES = ((28, 28, 1), (32, 32, 3), (64, 64, 3))
TEACHERS = {
    "dense, topagg": {},
    "dense, klevel": {"votes": "klevel"},
    "dense, count_sketch": {"votes": "count_sketch"},
    "dense, topagg, class-pure": {"shards": "class_pure", "images_per_step": 20},
    "dense, topagg, after moments": {"warm_start": "moments"},
    "kernel, topagg": {"teacher": "kernel"},
    "conv, topagg": {"teacher": "conv"},
}
_SAMPLES = 2_000
"""Of guided, whose classifier learns from so many before the first gradient, which is not counted."""


def methods(teachers: int) -> dict[str, Method]:
    """By name."""
    common = {"num_teachers": teachers, "teacher_warmup_steps": 2}
    voting = {f"datalens: {name}": DataLens(**(common | changes)) for name, changes in TEACHERS.items()}
    return {"moments": Moments(), "mixture": Mixture(), "guided": Guided(samples=_SAMPLES), **voting}


def measured(method: Method, data: Dataset, clock: Clock, votes: int) -> dict[str, Any]:
    """Time and memory of some steps of one method."""
    gc.collect()
    clock.forget_peak()
    units = limit_units(10.0, 1e-5)
    try:
        plan = method.plan(data.schema, units)
    except InvalidSpec as error:
        return {"refused": error.detail}
    began, noise = clock.now(), NoiseSource()
    inputs = RunInputs(TrainingRandomness(0), ExecutionOptions(clock.device))
    training = Training(method, plan, data, MemoryAccount(units), inputs)
    training.look()
    started = clock.now() - began
    # What is timed follows a start: votes a warm start, gradients the training of their classifier.
    follows = isinstance(method, (DataLens, Guided))
    uncounted = range(plan.steps - plan.releases[-1].count + 1 if follows else 0)
    for _ in uncounted:
        training.step(noise)
    counted = range(uncounted.stop, min(plan.steps, uncounted.stop + votes))
    began = clock.now()
    for _ in counted:
        training.step(noise)
    return {
        "steps": len(counted),
        "start_seconds": started,
        "seconds_per_step": (clock.now() - began) / len(counted),
        "peak_memory_gib": clock.peak_memory_gib(),
        "refused": None,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time and memory per step by the size of images.")
    parser.add_argument("--teachers", type=int, default=1000)
    parser.add_argument("--records", type=int, default=15_000)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, …")
    parser.add_argument("--steps", type=int, default=3, help="releases timed at most")
    parser.add_argument("--processor-time", action="store_true", help="count the time that the processor gave")
    parser.add_argument("--method", action="append", help="only those whose name begins so")
    chosen = parser.parse_args()
    clock = Clock(chosen.device, processor_time=chosen.processor_time)
    prefixes = tuple(chosen.method or [""])
    rows = []
    for shape in SHAPES:
        data = make_set(shape, chosen.records)
        for name, method in methods(chosen.teachers).items():
            if name.startswith(prefixes):
                row = {"images": "×".join(map(str, shape)), "method": name}
                rows.append(row | measured(method, data, clock, chosen.steps))
    result = {
        **provenance(),
        "torch": torch.__version__,
        "device": chosen.device,
        "gpu": torch.cuda.get_device_name(chosen.device) if clock.on_gpu else None,
        "processor_time": chosen.processor_time,
        "load_average": os.getloadavg()[0],
        "threads": torch.get_num_threads(),
        "teachers": chosen.teachers,
        "records": chosen.records,
        "rows": rows,
    }
    print_result(result)


if __name__ == "__main__":
    main()
