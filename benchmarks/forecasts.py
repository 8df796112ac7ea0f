"""What jobs reach on sets of many kinds: the rows that forecasts of plans rest on (docs/expectations.md).

    python -m benchmarks.forecasts measure --minutes 14
    python -m benchmarks.forecasts score
    python -m benchmarks.forecasts measure --dataset signs --records 400 --epsilon 1 --choice look

`measure` runs the cells that the table of the package (`datalens_service/planning/measured.jsonl`) lacks, until the
minutes are over, and adds each as a line; a cell that is named is measured and printed also if it is there. A cell is a
set, a number of its records, ε (δ = 10⁻⁵) and what learns: a choice of `auto` (`look`, `teach`, `classifier`), a
baseline (`class_averages`, `moments`) or `real` images. There is one seed; at most 5,000 records, 5,000 images that are
drawn, and the first 1,000 of the drawn test images.
`score` leaves one set out after the other and says how many results lie in the ranges that were made without them, and
the mean interval score, beside those of what plans said before (benchmarks/results/forecasts.jsonl).
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast

import numpy as np

from benchmarks.environment import PARTITION_KEY, SCHEMAS, provenance, public_set, require_test_split
from benchmarks.kept_results import print_result, read_results
from benchmarks.made_sets import MADE
from datalens_service.data.dataset import Dataset, Images, Split
from datalens_service.data.digits import digits
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.baselines import class_average_score
from datalens_service.evaluation.metrics.discriminant import label_by_pixels
from datalens_service.evaluation.metrics.outcome import Score
from datalens_service.methods import AnyMethod
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.generators.generator import Generator
from datalens_service.planning.forecast import facts_of_row, forecast, list_usable
from datalens_service.planning.job_names import choose
from datalens_service.planning.measured import TABLE, Measured, read_rows
from datalens_service.planning.phases import measure_machine
from datalens_service.planning.presets import build_baseline
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

DELTA: Final = 1e-5
_MOST_RECORDS, _TEST_IMAGES, _DRAWN = 5_000, 1_000, 5_000
_SETS: Final = (
    "digits", "bars", "bccd", "signs", "scans", "lesions", "textures", "cells", "products", "shapes", "dots", "glyphs",
    "scenes", "smiles64", "mnist", "fashion_mnist", "cifar10",
)  # fmt: skip
_CHOICES: Final = ("look", "teach", "classifier", "class_averages", "moments", "real")
_STAGES: Final = (
    (("look", 1.0),),
    (("class_averages", 1.0), ("class_averages", 5.0)),
    (("classifier", 1.0), ("look", 5.0)),
    (("real", 0.0),),
    (("teach", 5.0), ("classifier", 5.0)),
    (("teach", 1.0),),
    (("moments", 1.0), ("moments", 5.0)),
)
"""What is measured of one set after the other, the most telling first; real images have no ε."""
_LEFT_OUT: Final = 0.2
"""Share of results that may lie outside of a range, by which the interval score weighs them."""
_PRESETS: Final = {"look": "auto", "teach": "teach", "classifier": "classifier"}


class Cell(NamedTuple):
    """One result of the table."""

    dataset: str
    records: int
    choice: str
    epsilon: float


def list_cells() -> Iterator[Cell]:
    """All cells, in the order in which they are measured."""
    known = {name: MADE[name].records if name in MADE else SCHEMAS[name].num_units for name in _SETS}
    sizes = {name: min(records, _MOST_RECORDS) for name, records in known.items()}
    for stage in _STAGES:
        yield from (Cell(name, sizes[name], choice, epsilon) for name in _SETS for choice, epsilon in stage)


@functools.cache
def draw(name: str, records: int) -> Dataset:
    """So many records of a set, and up to 1,000 test images."""
    upload = MADE[name].build() if name in MADE else digits() if name == "digits" else public_set(name)
    train, test = _take(upload.train, records), _take(require_test_split(upload), _TEST_IMAGES)
    schema = upload.schema.model_copy(update={"num_units": len(train.labels)})
    return Dataset(schema, train, test, PARTITION_KEY)


def _take(split: Split, count: int) -> Split:
    rows = np.sort(np.random.default_rng(0).permutation(len(split.labels))[:count])
    return Split(np.asarray(split.images[rows]), split.labels[rows])


def measure(cell: Cell) -> Measured:
    """A line of the table."""
    data = draw(cell.dataset, cell.records)
    schema, shares = data.schema, np.bincount(data.train.labels, minlength=data.schema.num_classes)
    method = _choose(cell, data)
    began = time.process_time()
    found, discriminant, trained = _score(cell, method, data)
    ended = time.process_time()
    encoder = method and method.public_inputs().encoder
    test = np.bincount(data.test.labels) if data.test else shares
    return Measured(
        dataset=cell.dataset,
        made=cell.dataset in MADE,
        height=schema.height,
        width=schema.width,
        channels=schema.channels,
        shares=tuple(round(float(share), 4) for share in shares / shares.sum()),
        units=schema.num_units,
        epsilon=cell.epsilon,
        delta=DELTA,
        choice=cell.choice,
        method=method.name if method else cell.choice,
        encoder=encoder.name if encoder else None,
        accuracy=round(found.accuracy, 1),
        balanced=round(found.balanced, 1),
        discriminant=discriminant and round(discriminant.balanced, 1),
        majority=round(100 * float(test.max() / test.sum()), 1),
        training_seconds=round(trained - began, 1),
        judging_seconds=round(ended - trained, 1),
        calibration_seconds=round(measure_machine(), 5),
        judge=2,
        **{name: provenance()[name] for name in ("commit", "machine")},
    )


def _choose(cell: Cell, data: Dataset) -> AnyMethod | None:
    if cell.choice == "moments":
        return build_baseline(data.schema)
    return choose(_PRESETS[cell.choice], data.schema, cell.epsilon) if cell.choice in _PRESETS else None


def _score(cell: Cell, method: AnyMethod | None, data: Dataset) -> tuple[Score, Score | None, float]:
    """Scores of the judge and of the discriminant of the same images, and the time when training had ended."""
    test = require_test_split(data)
    if cell.choice == "class_averages":
        budget = {"epsilon": cell.epsilon, "delta": DELTA}
        return class_average_score(data.train, test, data.schema, seed=0, **budget), None, time.process_time()
    images: Images = data.train.images
    labels: downstream.Targets = data.train.labels
    if method is not None:
        spec = TrainingSpec(method=method, epsilon=cell.epsilon, delta=DELTA, seed=0)
        model = run(spec, data, account=UnchargedAccount()).model
        if isinstance(model, Classifier):
            trained = time.process_time()
            return Score.from_labels(model.predict(test.images).argmax(axis=1), test.labels), None, trained
        images, labels = cast(Generator, model).draw_training_set(_DRAWN, seed=0)
    trained, classes = time.process_time(), data.schema.num_classes
    network = downstream.train_network(images, labels, classes, seed=0, device="cpu")
    linear = label_by_pixels(images, labels, test.images, classes)
    found = Score.from_labels(downstream.label_images(network, test.images, "cpu"), test.labels)
    return found, Score.from_labels(linear, test.labels), trained


def measure_missing(minutes: float, wanted: Cell | None) -> None:
    """Add the cells that are missing, until so many minutes are over."""
    until = time.monotonic() + 60 * minutes
    known = {Cell(row.dataset, row.units, row.choice, row.epsilon) for row in read_rows()}
    for cell in [wanted] if wanted else list_cells():
        if wanted is None and (cell in known or _is_known_as_look(cell)):
            continue
        if time.monotonic() > until:
            return
        row = measure(cell).model_dump_json(exclude_defaults=True)
        if cell not in known:
            with TABLE.open("a", encoding="utf-8") as table:
                table.write(row + "\n")
        sys.stdout.write(row + "\n")
        sys.stdout.flush()


class Scored(NamedTuple):
    """A result beside a range that was made without its set, in percent."""

    reached: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether the range holds the result, to the digit in which both are printed."""
        return round(self.low, 1) <= self.reached <= round(self.high, 1)

    @property
    def interval_score(self) -> float:
        """Width, and ten times what the result lies beyond it (Winkler 1972, for 80 %): less is better."""
        beyond = max(self.low - self.reached, self.reached - self.high, 0.0)
        return self.high - self.low + 2 / _LEFT_OUT * beyond


def score_left_out(choice: str, *, declared: bool) -> list[Scored]:
    """Results of a choice beside ranges that were made without any row of their set.

    Args:
        choice: As in the table.
        declared: True for shares of all images, with the frequencies of the classes as declared, of which somebody
            who knows them reaches the most frequent class at least; False for means over classes.
    """
    scored = []
    for row in list_usable(choice):
        reached = _read_reached(row, declared=declared)
        if reached is not None:
            told = forecast(choice, facts_of_row(row, declared=declared), without=row.dataset)
            scored.append(Scored(reached, told.low, told.high))
    return scored


def score_earlier(choice: str, *, declared: bool) -> list[Scored]:
    """The same results beside what plans said before these rows, of which some were of the same sets."""
    told = {Cell(*(line[name] for name in Cell._fields)): line for line in read_results("forecasts")}
    scored = []
    for row in list_usable(choice):
        line = told.get(Cell(row.dataset, row.units, row.choice, row.epsilon))
        reached = _read_reached(row, declared=declared)
        if line is not None and reached is not None:
            scored.append(Scored(reached, line["low"], line["high"]))
    return scored


def _read_reached(row: Measured, *, declared: bool) -> float | None:
    return max(row.accuracy, row.majority) if declared else row.balanced


def compare_scores() -> Iterator[dict[str, object]]:
    """Coverage and mean interval score of each choice, of these forecasts and of earlier ones."""
    for choice in ("look", "teach", "classifier", "class_averages", "real"):
        for declared in (False, True):
            scored = {
                "left_out": score_left_out(choice, declared=declared),
                "earlier": score_earlier(choice, declared=declared),
            }
            yield {"choice": choice, "declared": declared} | {
                kind: summarize(found) for kind, found in scored.items() if found
            }


def summarize(scored: Sequence[Scored]) -> dict[str, object]:
    """How many ranges hold, and means of their width and score."""
    return {
        "inside": f"{sum(one.inside for one in scored)} of {len(scored)}",
        "width": round(statistics.mean(one.high - one.low for one in scored), 1),
        "interval_score": round(statistics.mean(one.interval_score for one in scored), 1),
    }


def _is_known_as_look(cell: Cell) -> bool:
    """Tell whether images that teach are those to look at."""
    if cell.choice != "teach":
        return False
    schema = draw(cell.dataset, cell.records).schema
    return choose("teach", schema, cell.epsilon) == choose("auto", schema, cell.epsilon)


def main() -> None:
    """Parse and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "score"))
    parser.add_argument("--minutes", type=float, default=14.0)
    parser.add_argument("--dataset", choices=_SETS)
    parser.add_argument("--records", type=int, default=_MOST_RECORDS)
    parser.add_argument("--choice", choices=_CHOICES, default="look")
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    if options.what == "score":
        for line in compare_scores():
            print_result(line)
        return
    wanted = None
    if options.dataset:
        wanted = Cell(options.dataset, options.records, options.choice, options.epsilon)
    measure_missing(options.minutes, wanted)


if __name__ == "__main__":
    main()
