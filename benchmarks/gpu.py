"""What needs a GPU, in one command of at most ten minutes: `python -m benchmarks.gpu --out gpu.jsonl`.

    mnist-1     the published run of DataLens on MNIST at ε = 1: 4,000 convolutional teachers, 149 votes
    mnist-10    the same at ε = 10
    faces       the published settings for faces on 30,000 photographs of CIFAR-10, enlarged to 64×64: 1,000 teachers
    hundred     the published settings of MNIST on 30,000 pairs of its digits: 100 classes, 2,000 teachers
    tests       the tests that need CUDA

Each part gets a line of JSON when it ends or when its time is over; a part that has a line is not run again. Charges
and noise are those of a job, so its accuracy is one that the budget paid for: that of the standard CNN on real test
images after its last epoch.

`--share 0.01` takes a hundredth of the records, to try the command on a CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.earlier_judge import earlier_accuracy
from benchmarks.environment import PARTITION_KEY, ROOT, dataset, provenance
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.methods.driver import Training
from datalens_service.methods.script import ExecutionOptions, RunInputs
from datalens_service.models.generators.generator import Generator
from datalens_service.planning.published import build_published
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

DELTA: Final = 1e-5
_CUDA_TESTS: Final = tuple(
    f"tests/models/test_{name}.py" for name in ("per_record", "ensemble", "tensor_store", "linear_taps")
)


class Part(NamedTuple):
    """A run, and how long it may take."""

    dataset: str
    preset: str
    epsilon: float
    records: int
    seconds: float
    enlarged: int = 1
    """Times that a pixel is repeated along each side."""
    paired: bool = False
    """Whether two images make one, of one of 100 classes."""


PARTS: Final = {
    "mnist-1": Part("mnist", "paper", 1.0, 60_000, 170),
    "mnist-10": Part("mnist", "paper", 10.0, 60_000, 160),
    "faces": Part("cifar10", "paper_celeba_gender", 1.0, 30_000, 80, enlarged=2),
    "hundred": Part("mnist", "paper", 1.0, 30_000, 60, paired=True),
}


def take(data: Dataset, part: Part, share: float) -> Dataset:
    """The records of a part, or a share of them."""
    count = round(part.records * share)
    splits = [split and _enlarge(split, part.enlarged) for split in (data.train, data.test)]
    if part.paired:
        splits = [split and _pair(split) for split in splits]
    train = Split(splits[0].images[:count], splits[0].labels[:count])
    height, width = train.images.shape[1:3]
    names = tuple(f"{number:02}" for number in range(100)) if part.paired else data.schema.class_names
    shape = {"num_units": count, "height": height, "width": width, "class_names": names}
    schema = data.schema.model_copy(update=shape)
    return Dataset(Schema.model_validate(schema.model_dump()), train, splits[1], partition_key=PARTITION_KEY)


def _enlarge(split: Split, times: int) -> Split:
    return Split(split.images.repeat(times, axis=1).repeat(times, axis=2), split.labels)


def _pair(split: Split) -> Split:
    """Each image with the next one at its side."""
    left, right = (slice(first, len(split.labels) // 2 * 2, 2) for first in (0, 1))
    images = np.concatenate([split.images[left], split.images[right]], axis=2)
    return Split(images, 10 * split.labels[left] + split.labels[right])


def measure(part: Part, data: Dataset, device: str, images: int) -> dict[str, Any]:
    """Train until the votes or the seconds of a part are used up, then judge."""
    units = limit_units(part.epsilon, DELTA)
    method = build_published(part.preset, data.schema, part.epsilon)
    plan = method.plan(data.schema, units)
    inputs = RunInputs(TrainingRandomness(0), ExecutionOptions(device))
    training = Training(method, plan, data, MemoryAccount(units), inputs)
    began, noise = time.monotonic(), NoiseSource()
    while training.made < plan.steps and time.monotonic() - began < part.seconds:
        training.step(noise)
    seconds = time.monotonic() - began
    generator = training.outcome().model
    if not isinstance(generator, Generator):
        raise TypeError("voting makes a generator")
    drawn, labels = generator.sample(images, seed=0)
    return {
        "records": data.schema.num_units, "teachers": method.num_teachers,
        "noise_stddev": plan.releases[-1].mechanism.noise_stddev,
        "votes": training.made, "votes_paid_for": plan.steps, "seconds": round(seconds, 1),
        "peak_gpu_bytes": _peak(device), "synthetic_images": images,
        "accuracy": round(earlier_accuracy(drawn, labels, data, 3, 0), 2),
        "brightness": round(float(np.mean(drawn)), 2),
    }  # fmt: skip


def _peak(device: str) -> int | None:
    if not device.startswith("cuda"):
        return None
    import torch

    return int(torch.cuda.max_memory_allocated(device))


def run_cuda_tests() -> dict[str, Any]:
    """The closing line of the tests that need CUDA."""
    command = [sys.executable, "-m", "pytest", "-q", *_CUDA_TESTS]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {"status": ended.returncode, "said": ended.stdout.strip().splitlines()[-1]}


def has_line(out: Path, name: str) -> bool:
    """Whether a part was measured before."""
    return out.exists() and any(json.loads(line)["part"] == name for line in out.read_text().splitlines())


def main() -> None:
    """Measure part after part, and keep each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines that results are added to")
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, "tests"], default=[*PARTS, "tests"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--share", type=float, default=1.0, help="of the records")
    parser.add_argument("--images", type=int, default=20_000, help="synthetic images that are judged")
    options = parser.parse_args()
    for name in options.parts:
        if has_line(options.out, name):
            continue
        if name == "tests":
            result = run_cuda_tests()
        else:
            part = PARTS[name]
            data = take(dataset(part.dataset), part, options.share)
            result = {**part._asdict(), **measure(part, data, options.device, options.images)}
        with options.out.open("a") as out:
            out.write(json.dumps({"part": name, **provenance(), **result}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
