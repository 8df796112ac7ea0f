"""What sets of owners cost: `python -m benchmarks.owners --along first >> benchmarks/results/owners.jsonl`.

Photographs of CIFAR-10, enlarged, go through `datalens train` as an owner types it: seconds until the images are ready
and until the evaluation ends, by the clock and of the processor, and peak memory. Each set is a line; it differs from
the first in what `--along` names. `--along rival` runs DP-MERF on the first set, judged as the report judges.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from PIL import Image

from benchmarks.dp_merf import FEATURES, STEPS, draw_images
from benchmarks.environment import PARTITION_KEY, provenance, public_set
from benchmarks.kept_results import print_result
from benchmarks.panel import DELTA, tested
from datalens_service.data.dataset import Dataset, Images, Split
from datalens_service.evaluation import EvaluationSettings
from datalens_service.evaluation.metrics.downstream import labelled, trained

_TEST_IMAGES: Final = 1_000
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_TRAIN: Final = (sys.executable, "-c", "from datalens_service.cli import main; main()", "train", "--confirm-classes")
_READY: Final = "images are ready"


class Size(NamedTuple):
    """Of a set."""

    records: int
    side: int
    classes: int


FIRST: Final = Size(records=3_000, side=64, classes=10)
OTHERS: Final = {"records": 11_000, "side": 128, "classes": 2}
SETS: Final = {"first": FIRST, **{along: FIRST._replace(**{along: size}) for along, size in OTHERS.items()}}
RIVAL: Final = "rival"


def enlarged(size: Size) -> Dataset:
    """Some photographs of the first classes, at another size."""
    upload = public_set("cifar10")
    if upload.test is None:
        raise SystemExit("the set has no test images")
    train, test = (
        _first(split, size, most) for split, most in ((upload.train, size.records), (upload.test, _TEST_IMAGES))
    )
    schema = upload.schema.model_copy(
        update={
            "height": size.side,
            "width": size.side,
            "class_names": upload.schema.class_names[: size.classes],
            "num_units": len(train.labels),
        }
    )
    return Dataset(schema, train, test, PARTITION_KEY)


def _first(split: Split, size: Size, most: int) -> Split:
    order = np.random.default_rng(0).permutation(len(split.labels))
    rows = order[split.labels[order] < size.classes][:most]
    return Split(_resized(split.images[rows], size.side), split.labels[rows])


def _resized(images: Images, side: int) -> Images:
    return np.stack(
        [np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)) for image in images]
    )


def timed(size: Size, epsilon: float, data: Dataset) -> dict[str, Any]:
    """One `datalens train`."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "set.npz"), Path(folder, "out")
        arrays = {"train": data.train, "test": data.test}
        np.savez(
            path,
            **{
                f"{name}_{part}": getattr(split, part)
                for name, split in arrays.items()
                for part in ("images", "labels")
            },
        )
        spent = followed(
            [*_TRAIN, "--data", str(path), "--epsilon", f"{epsilon:g}", "--delta", f"{DELTA:g}", "--out", str(out)]
        )
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    accuracy = {one["name"]: round(one["value"], 1) for one in report["measures"] if one["unit"] == "percent"}
    return {
        **size._asdict(),
        "method": report["method"]["name"],
        **spent,
        "accuracy": accuracy["accuracy"],
        "class_averages": accuracy["floor_averages"],
        "real": accuracy["ceiling"],
    }


def followed(command: list[str]) -> dict[str, float]:
    """Time and memory of a process, up to the release and after it."""
    began = released = time.monotonic()
    release_processor = 0.0
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        for line in process.stderr or ():
            if _READY in line:
                released, release_processor = time.monotonic(), _processor_seconds(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"datalens train ended with {process.returncode}")
    return {
        "release_seconds": round(released - began, 1),
        "release_processor_seconds": round(release_processor, 1),
        "evaluation_seconds": round(time.monotonic() - released, 1),
        "evaluation_processor_seconds": round(usage.ru_utime + usage.ru_stime - release_processor, 1),
        "peak_mib": round(usage.ru_maxrss / 1024),
    }


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def referenced(data: Dataset, epsilon: float) -> dict[str, Any]:
    """DP-MERF on the same records, judged by the standard CNN as a job judges."""
    settings = EvaluationSettings().bounded_for(data.schema)
    began = time.process_time()
    images, labels = draw_images(data, epsilon, DELTA, settings.synthetic_images)
    seconds = time.process_time() - began
    real, wanted = tested(data)
    network = trained(
        images, labels, data.schema.num_classes,
        steps=settings.steps, seed=0, device="cpu", batch_size=settings.batch_size,
    )  # fmt: skip
    found = labelled(network, real, "cpu")
    return {
        "method": "DP-MERF",
        "features": FEATURES,
        "steps": STEPS,
        "processor_seconds": round(seconds, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "accuracy": round(100 * float(np.mean(found == wanted)), 1),
    }


def growth(first: dict[str, Any], other: dict[str, Any], along: str) -> dict[str, float]:
    """The power with which each figure follows `along`."""
    ratio = math.log(other[along] / first[along])
    figures = ("release_processor_seconds", "evaluation_processor_seconds", "peak_mib")
    return {name: round(math.log(other[name] / first[name]) / ratio, 2) for name in figures}


def main() -> None:
    """Measure one set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--along", choices=[*SETS, RIVAL], default="first", help="in what the set differs")
    options = parser.parse_args()
    data = enlarged(SETS.get(options.along, FIRST))
    if options.along == RIVAL:
        measured = referenced(data, options.epsilon)
    else:
        measured = timed(SETS[options.along], options.epsilon, data)
    stated = {"along": options.along, "epsilon": options.epsilon, "delta": DELTA, "load_average": os.getloadavg()[0]}
    print_result({**provenance(), **stated, **measured})


if __name__ == "__main__":
    main()
