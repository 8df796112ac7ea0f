"""What jobs reach by size of the data set, ε and preset: the table that plans quote (docs/expectations.md).

    python -m benchmarks.expectations measure --dataset mnist --units 2000 --epsilon 1 --preset auto
    python -m benchmarks.expectations adopt --dataset mnist --epsilon 1
    python -m benchmarks.expectations check --dataset fashion_mnist --units 4000 --epsilon 3 --preset auto

`measure` draws that many training images for each seed, trains, and adds the row to the table of the package
(`datalens_service/planning/expectations.json`). Accuracy is that of the standard CNN on real test images after
training on the samples, or of the classifier itself; last epoch, nothing is selected on test data. `adopt` takes a
row of the utility table for jobs on all records, with all of its seeds; with `--seconds-of`, seconds of another seed,
if the first used kept models.
`check` runs a job that is not in the table and says whether it lies inside what a plan would have said.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.environment import SCHEMAS, provenance
from benchmarks.kept_results import print_result, read_rows
from benchmarks.panel import Cell, draw
from benchmarks.pooling import Row, pool, protocol
from benchmarks.rows import ROWS
from benchmarks.utility import trained_on
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.planning.expectations import TABLE, expect, measure_machine, read_table
from datalens_service.planning.job_names import TEACH, choose
from datalens_service.planning.reached import Measured
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

PRESETS = ("auto", "fast", "classifier", TEACH)
ADOPTED = {"auto": "auto", "teach": TEACH, "warm": "balanced", "diffusion": "diffusion"}
"""Presets by the names of rows of the utility benchmark."""
DELTA = 1e-5


def draw_units(options: argparse.Namespace, seed: int) -> Dataset:
    """As many training images, drawn by `seed`."""
    return draw(Cell(options.dataset, options.units, options.epsilon), seed)


def build_spec(options: argparse.Namespace, data: Dataset, seed: int) -> TrainingSpec:
    """The job that the preset makes."""
    method = choose(options.preset, data.schema, options.epsilon)
    return TrainingSpec(method=method, epsilon=options.epsilon, delta=DELTA, seed=seed)


def run_once(options: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Accuracy in percent, and processor seconds of training."""
    drawn = draw_units(options, seed)
    began = time.process_time()
    released = run(build_spec(options, drawn, seed), drawn, account=UnchargedAccount()).model
    seconds = time.process_time() - began
    return score(released, drawn, options, seed), seconds


def score(released: Any, data: Dataset, options: argparse.Namespace, seed: int) -> float:
    """Percent of real test images that are recognised."""
    if data.test is None:
        raise SystemExit("the data set has no test split")
    if isinstance(released, Classifier):
        predicted = released.predict(data.test.images).argmax(axis=1)
        return round(100 * float(np.mean(predicted == data.test.labels)), 2)
    images, labels = released.draw_training_set(options.images, seed=seed)
    return round(trained_on(images, labels, data, seed), 2)


def measure(options: argparse.Namespace) -> Measured:
    """One row, over seeds."""
    runs = [run_once(options, seed) for seed in range(options.seeds)]
    schema = draw_units(options, 0).schema
    method = choose(options.preset, schema, options.epsilon)
    encoder = method.public_inputs().encoder
    return Measured(
        dataset=options.dataset,
        preset=options.preset,
        method=method.name,
        units=options.units,
        epsilon=options.epsilon,
        accuracies=tuple(percent for percent, _ in runs),
        training_seconds=max(0.1, round(float(np.mean([seconds for _, seconds in runs])), 1)),
        calibration_seconds=round(measure_machine(), 5),
        synthetic_images=options.images if method.result == "generator" else 0,
        judge=2,
        commit=provenance()["commit"],
        machine=provenance()["machine"],
        channels=schema.channels,
        side=schema.height,
        num_classes=schema.num_classes,
        encoder=encoder and encoder.name,
    )


def name_alike(options: argparse.Namespace, schema: Schema) -> list[str]:
    """The presets that make the very same job."""
    method = choose(options.preset, schema, options.epsilon)
    return [name for name in PRESETS if choose(name, schema, options.epsilon) == method]


def store(row: Measured, presets: Sequence[str]) -> None:
    """Put a row into the table once for each of its presets, in place of one of the same job."""
    added = [row.model_copy(update={"preset": name}) for name in presets]
    jobs = {item.job for item in added}
    rows = [other for other in read_table() if other.job not in jobs] + added
    rows.sort(key=lambda item: (item.preset, item.dataset, item.units, item.epsilon))
    TABLE.write_text(json.dumps([item.model_dump(mode="json") for item in rows], indent=1) + "\n")


def check(options: argparse.Namespace) -> dict[str, Any]:
    """A fresh job beside what a plan says of it."""
    data = draw_units(options, 0)
    expected = expect(build_spec(options, data, 0), data.schema)
    reached, seconds = run_once(options, options.seed)
    inside = expected.accuracy_low <= reached <= expected.accuracy_high
    job = {"dataset": options.dataset, "preset": options.preset, "units": options.units, "epsilon": options.epsilon}
    return (
        provenance()
        | job
        | {
            "expected": expected.model_dump(),
            "accuracy": reached,
            "training_seconds": round(seconds, 1),
            "inside": inside,
        }
    )


def adopt(
    results: Sequence[Row], dataset_name: str, epsilon: float, name: str = "auto", timed: int | None = None
) -> Measured:
    """The row of the utility benchmark for a preset on all records.

    Args:
        results: Rows of that benchmark; the first of the job says images and epochs.
        dataset_name: Of the row.
        epsilon: Of the row.
        name: Of the row there.
        timed: First seed of the row that says how long jobs trained; None takes the first row.
    """
    job = {
        "row": name,
        "method": ROWS[name].title,
        "dataset": dataset_name,
        "epsilon": epsilon,
        "delta": DELTA,
        "settings": [],
    }
    rows = [row for row in results if job.items() <= row.items()]
    if not rows:
        raise SystemExit("no such row was measured")
    row = pool(rows[0], rows[1:])
    alike = [one for one in rows if protocol(one) == protocol(row)]
    timing = next((one for one in alike if timed in (None, one.get("first_seed", 0))), None)
    if timing is None:
        raise SystemExit("no row of the same job has such a first seed")
    schema = SCHEMAS[row["dataset"]]
    return Measured(
        dataset=row["dataset"],
        preset=ADOPTED[name],
        method=choose(ADOPTED[name], schema, row["epsilon"]).name,
        units=schema.num_units,
        epsilon=row["epsilon"],
        accuracies=tuple(row.get("accuracies", [row["accuracy_mean"]])),
        training_seconds=timing["seconds"],
        calibration_seconds=calibration_of(timing["machine"]),
        synthetic_images=row["synthetic_images"],
        epochs=row.get("epochs", 0),
        judge=row.get("judge", 1),
        commit=row["commit"],
        machine=timing["machine"],
    )


def calibration_of(machine: str) -> float:
    """Of a machine as it was when it measured rows: while it has other work today, its caches are slower."""
    known = [row.calibration_seconds for row in read_table() if row.machine == machine]
    return min(known, default=round(measure_machine(), 5))


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "adopt", "check"))
    parser.add_argument("--seconds-of", type=int, metavar="SEED", help="of adopt: first seed of a row that trained")
    parser.add_argument("--row", choices=ADOPTED, default="auto", help="of adopt")
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist", "cifar10", "smiles64"), default="mnist")
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--preset", choices=PRESETS, default="auto")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=100, help="of a check")
    parser.add_argument("--images", type=int, default=30_000)
    options = parser.parse_args()
    if options.what == "check":
        print_result(check(options))
    elif options.what == "adopt":
        row = adopt(read_rows("utility"), options.dataset, options.epsilon, options.row, options.seconds_of)
        store(row, [row.preset])
    else:
        row = measure(options)
        store(row, name_alike(options, draw_units(options, 0).schema))
        sys.stdout.write(row.model_dump_json() + "\n")


if __name__ == "__main__":
    main()
