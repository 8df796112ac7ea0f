"""What bounds the accuracy of a row: each step between records and samples by itself.

    python -m benchmarks.limits --row auto --dataset fashion_mnist --epsilon 1 --images 60000 --epochs 5 --out …

The standard CNN learns as often from as many images, and is tested on the real test images, after

    records                     with their labels
    records, released labels    with those that the released classifier gives them
    records, redrawn            encoded as outlines and decoded, as samples of `shapes` are
    samples                     as they are handed out
    samples, right labels       with those of a standard CNN that learned from all records

`labeller` is the released classifier itself on the test images. One seed; nothing is selected on test data.
`--seed`, `--held-out` and `--models FOLDER` choose the generator, as in `benchmarks.utility`; it draws, and the CNN
learns, with seed 0.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.environment import dataset, provenance, without_test_images
from benchmarks.rows import ROWS
from benchmarks.utility import trained, trained_on
from datalens_service.data.dataset import Dataset, Images, Labels
from datalens_service.evaluation.metrics.downstream import predicted
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.generators import diffusion
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.level_sets import LevelSets

_SEED: Final = 0
_JUDGE_EPOCHS: Final = 8


def labeller_of(generator: Generator) -> tuple[Classifier, dict[str, Any]]:
    """The classifier that a generator holds, and the settings of the shapes that it labels."""
    kind, settings, tensors = generator.kind, generator.settings, generator.tensors
    if kind == "diffusion":
        kind, settings = settings["start"]["kind"], settings["start"]["settings"]
        tensors = {name.removeprefix("start."): part for name, part in tensors.items() if name.startswith("start.")}
    classifier = diffusion.labeller_of(diffusion.Start(kind, settings, tensors), generator.schema)
    if kind != "rejection" or not isinstance(classifier, Classifier):
        raise SystemExit("Choose a row whose images come from rejection.")
    return classifier, settings["start"]


def label(classifier: Classifier, images: Images) -> Labels:
    """(n,) classes that a released classifier sees."""
    return np.asarray(classifier.predict(images).argmax(axis=1), dtype=np.int64)


def training_sets(generator: Generator, data: Dataset, count: int) -> Iterator[tuple[str, Images, Labels]]:
    """By name."""
    records, own_labels = data.train.images[:count], data.train.labels[:count]
    classifier, shapes = labeller_of(generator)
    yield "records", records, own_labels
    yield "records, released labels", records, label(classifier, records)
    codec = LevelSets(data.schema, shapes["content"])
    yield "records, redrawn", codec.decode_records(codec.encode(records)), own_labels
    samples, requested = generator.sample(count, seed=_SEED)
    yield "samples", samples, requested
    yield "samples, right labels", samples, judged(samples, data)


def judged(samples: Images, data: Dataset) -> Labels:
    """(n,) classes that a standard CNN sees which learned from all records."""
    options: dict[str, Any] = {"epochs": _JUDGE_EPOCHS, "seed": _SEED, "device": "cpu"}
    return predicted(data.train.images, data.train.labels, samples, data.schema.num_classes, **options)


def measure(generator: Generator, data: Dataset, count: int, epochs: int) -> dict[str, float]:
    """Accuracy in percent, by what the classifier learned from."""
    if data.test is None:
        raise SystemExit("The set has no test images.")
    seen = label(labeller_of(generator)[0], data.test.images)
    figures = {"labeller": round(100 * float(np.mean(seen == data.test.labels)), 2)}
    for name, images, labels in training_sets(generator, data, count):
        figures[name] = round(trained_on(images, labels, data, epochs, _SEED), 2)
    return figures


def main() -> None:
    """Train once or take a kept model, measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", choices=("auto", "rejection", "diffusion"), default="auto")
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="fashion_mnist")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="of a trial")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the generator")
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--held-out", action="store_true", help="judge by training images that were left out")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="keep generators, and use those kept")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    origin, data = provenance(), dataset(options.dataset)
    if options.held_out:
        data = without_test_images(data)
    chosen = ROWS[options.row]
    spec = chosen.options(options.epsilon, 1e-5, options.seed, tuple(options.settings)).build_spec(data.schema)
    generators, _ = trained(chosen, spec, data, options)
    figures = measure(generators[chosen.title], data, options.images, options.epochs)
    named = ("dataset", "row", "epsilon", "settings", "seed", "images", "epochs", "held_out")
    text = json.dumps({**origin, **{name: getattr(options, name) for name in named}, "accuracy": figures}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
