"""How good the standard CNN is as a ruler: its accuracy on real images beside that of one that is trained for longer.

    python -m benchmarks.judge --dataset signs --seed 0 >> benchmarks/results/judge.jsonl
    python -m benchmarks.judge --dataset signs --images 10000 --reference-steps 0

Records are the first of the draw of `benchmarks.panel`, at most 5,000, judged by the test images of that cell.
`reference` is the same network after four times as many steps at a rate of its own, `--reference-rate`; 0 steps
leave it out. `share` is the judge's accuracy in percent of that, both as means over classes. Seconds are of the
processor, on as many threads as `OMP_NUM_THREADS` says. `--images` repeats the records up to so many, to measure time.
`benchmarks.table` takes means over the seeds.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from benchmarks.environment import SCHEMAS, provenance, require_test_split
from benchmarks.kept_results import print_result
from benchmarks.panel import Cell, draw
from datalens_service.data.dataset import Images, Labels, Split
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.outcome import Score
from datalens_service.evaluation.settings import STEPS

_MOST_RECORDS: Final = 5_000


class Learner(NamedTuple):
    """How a network is trained."""

    steps: int
    rate: float
    seed: int


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """A line of the table."""
    records = min(SCHEMAS[options.dataset].num_units, _MOST_RECORDS)
    data = draw(Cell(options.dataset, records, 1.0), 0)
    rows = np.arange(options.images or records) % records
    images, labels = data.train.images[rows], data.train.labels[rows]
    judged = _learn(Learner(STEPS, downstream.LEARNING_RATE, options.seed), images, labels, require_test_split(data))
    line = {"dataset": options.dataset, "side": data.schema.height, "records": len(labels), "seed": options.seed}
    line |= {"steps": STEPS, "threads": torch.get_num_threads(), **judged}
    if options.reference_steps:
        learner = Learner(options.reference_steps, options.reference_rate, options.seed)
        reference = _learn(learner, images, labels, require_test_split(data))
        line |= {"reference_steps": learner.steps, "reference_rate": learner.rate}
        line |= {f"reference_{name}": value for name, value in reference.items()}
        line |= {"share": round(100 * judged["balanced"] / reference["balanced"], 1)}
    return line


def _learn(learner: Learner, images: Images, labels: Labels, test: Split) -> dict[str, float]:
    began = time.process_time()
    classes = int(max(labels.max(), test.labels.max())) + 1
    network = downstream.train_network(
        images, labels, classes, seed=learner.seed, device="cpu", steps=learner.steps, learning_rate=learner.rate
    )
    seconds = time.process_time() - began
    score = Score.from_labels(downstream.label_images(network, test.images, "cpu"), test.labels)
    figures = {"accuracy": score.accuracy, "balanced": score.balanced, "processor_seconds": seconds}
    return {name: round(value, 1) for name, value in figures.items()}


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=SCHEMAS, required=True)
    parser.add_argument("--images", type=int, help="repeat the records up to so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reference-steps", type=int, default=4 * STEPS)
    parser.add_argument("--reference-rate", type=float, default=2e-3)
    options = parser.parse_args()
    print_result({**provenance(), **measure(options)})


if __name__ == "__main__":
    main()
