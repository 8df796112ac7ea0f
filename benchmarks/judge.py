"""How good the standard CNN is as a ruler: its accuracy on real images beside that of one trained for longer.

    python -m benchmarks.judge --dataset signs >> benchmarks/results/judge.jsonl
    python -m benchmarks.judge --dataset cifar10 --records 5000 --reference-steps 4000
    python -m benchmarks.judge --dataset signs --images 10000 --reference-steps 0

Records are the first of the draw of `benchmarks.panel`. `reference` is the same network after more steps, of which 0
leaves it out; `earlier` is the standard CNN of versions up to 1.0.0 in the steps that it had. Seconds are those of the
first training, by the clock and by processors, on as many threads as `OMP_NUM_THREADS` says. `--images` repeats the
records up to so many, to measure time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch

from benchmarks.earlier_judge import label_earlier
from benchmarks.environment import SCHEMAS, provenance
from benchmarks.kept_results import print_result
from benchmarks.panel import Cell, draw, tested
from datalens_service.data.dataset import Images, Labels
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.outcome import Score
from datalens_service.evaluation.settings import STEPS

_EARLIER_IMAGES = 60_000
"""Two passes over 30,000 images."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """A line of the table."""
    records = options.records or SCHEMAS[options.dataset].num_units
    data = draw(Cell(options.dataset, records, 1.0), 0)
    images, labels = data.train.images, data.train.labels
    rows = np.arange(options.images or len(labels)) % len(labels)
    images, labels = images[rows], labels[rows]
    real, wanted = tested(data)
    began, processor = time.perf_counter(), time.process_time()
    found = [_judge(images, labels, real, wanted, STEPS, 0)]
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    found += [_judge(images, labels, real, wanted, STEPS, seed) for seed in range(1, options.seeds)]
    line = {
        "dataset": options.dataset,
        "records": len(labels),
        "steps": STEPS,
        "accuracy": _mean([score.accuracy for score in found]),
        "balanced": _mean([score.balanced for score in found]),
        "accuracies": [round(score.accuracy, 1) for score in found],
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "threads": torch.get_num_threads(),
    }
    if options.reference_steps:
        reference = _judge(images, labels, real, wanted, options.reference_steps, 0)
        epochs = max(2, _EARLIER_IMAGES // len(labels))
        earlier = label_earlier(images, labels, real, data.schema.num_classes, epochs, 0)
        before = Score.from_labels(earlier, wanted)
        line |= {
            "reference_steps": options.reference_steps,
            "reference": round(reference.accuracy, 1),
            "reference_balanced": round(reference.balanced, 1),
            "share": round(100 * line["accuracy"] / reference.accuracy, 1),
            "earlier": round(before.accuracy, 1),
            "earlier_balanced": round(before.balanced, 1),
        }
    return line


def _judge(images: Images, labels: Labels, real: Images, wanted: Labels, steps: int, seed: int) -> Score:
    classes = int(max(labels.max(), wanted.max())) + 1
    network = downstream.trained(images, labels, classes, seed=seed, device="cpu", steps=steps)
    return Score.from_labels(downstream.labelled(network, real, "cpu"), wanted)


def _mean(values: list[float]) -> float:
    return round(statistics.mean(values), 1)


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=SCHEMAS, required=True)
    parser.add_argument("--records", type=int, help="all without it")
    parser.add_argument("--images", type=int, help="repeat the records up to so many")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--reference-steps", type=int, default=3 * STEPS)
    options = parser.parse_args()
    print_result({**provenance(), **measure(options)})


if __name__ == "__main__":
    main()
