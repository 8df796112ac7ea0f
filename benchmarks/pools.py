"""What public images give an owner: students that see a pool as a job released it, and nothing else.

    python -m benchmarks.pools --method labelled_pool --epsilon 1 >> benchmarks/results/pools.jsonl
    python -m benchmarks.pools --method public_votes --pool same
    python -m benchmarks.pools --method private_evolution --dataset smiles64
    python -m benchmarks.pools --method real

10,000 training images of CIFAR-10 are drawn by the seed. Those of airplane, cat, deer, frog and truck, about 5,000, are
private; the others, of five other classes, are the pool. With `--pool same` it is as many other images of the private
classes, without labels. Of `smiles64`, 5,000 are private, and the faces of another set are the pool. Students are the
standard CNN, from nothing, last step, on real test images. `real` is a student of the private images, `floor` the
nearest of their noisy averages. `private_evolution` gets no pool, but a generator (`benchmarks.small_diffusion`).
`--show FILE` draws ten images of each class.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.environment import PARTITION_KEY, provenance, public_set, require_test_split
from benchmarks.grids import grid
from benchmarks.kept_results import print_result
from datalens_service.cli.specs import SpecOptions
from datalens_service.data.dataset import Dataset, Images, Labels, Schema, Split, Upload
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.baselines import class_average_score
from datalens_service.evaluation.metrics.downstream import Targets
from datalens_service.evaluation.metrics.outcome import Score
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

DELTA: Final = 1e-5
PRIVATE: Final = ("airplane", "cat", "deer", "frog", "truck")
DATASETS: Final = ("cifar10", "smiles64")
_POOL_OF_FACES: Final = "faces_pool64"
_DRAWN: Final = 10_000
_FACES: Final = 5_000
_REAL: Final = "real"
_FLOOR: Final = "floor"
_EVOLUTION: Final = "private_evolution"
_PLACE_OF_ENCODER: Final = {"labelled_pool": "classifier.encoder", "public_votes": "encoder", _EVOLUTION: "encoder"}


def draw(name: str, pool: str, seed: int) -> tuple[Dataset, Upload]:
    """Private images with their test images, and a pool beside them."""
    upload = public_set(name)
    order = np.random.default_rng(seed).permutation(len(upload.train.labels))
    private, test, others = draw_classes(upload, pool, order) if name == "cifar10" else draw_faces(upload, order)
    classes = PRIVATE if name == "cifar10" else upload.schema.class_names
    schema = upload.schema.model_copy(update={"class_names": classes, "num_units": len(private.labels)})
    unlabelled = schema.model_copy(
        update={"class_names": ("photograph",), "num_units": len(others), "records_are_public": True}
    )
    without = Split(others, np.zeros(len(others), dtype=np.int64))
    return Dataset(schema, private, test, PARTITION_KEY), Upload(unlabelled, without, None)


def draw_classes(upload: Upload, pool: str, order: Labels) -> tuple[Split, Split, Images]:
    """Images of the private classes, their test images, and others."""
    labels = np.array([PRIVATE.index(name) if name in PRIVATE else -1 for name in upload.schema.class_names])
    private, test = split(upload.train, labels, order[:_DRAWN], inside=True), require_test_split(upload)
    shown = order[_DRAWN : 2 * _DRAWN] if pool == "same" else order[:_DRAWN]
    others = split(upload.train, labels, shown, inside=pool == "same").images
    return private, split(test, labels, np.arange(len(test.labels)), inside=True), np.asarray(others)


def draw_faces(upload: Upload, order: Labels) -> tuple[Split, Split, Images]:
    """Faces, test images, and faces of another set."""
    rows = np.sort(order[:_FACES])
    private = Split(np.asarray(upload.train.images[rows]), upload.train.labels[rows])
    return private, require_test_split(upload), np.asarray(public_set(_POOL_OF_FACES).train.images)


def split(images: Split, labels: Labels, rows: Labels, *, inside: bool) -> Split:
    """Images of the private classes, or of the others, with the labels of the private ones."""
    rows = np.sort(rows)
    found = labels[images.labels[rows]]
    kept = rows[(found >= 0) == inside]
    return Split(np.asarray(images.images[kept]), labels[images.labels[kept]])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """A student of what a job released, or of the private images; or the floor."""
    data, pool = draw(options.dataset, options.pool, options.seed)
    began = time.process_time()
    images: Images = data.train.images
    targets: Targets = data.train.labels
    if options.method in _PLACE_OF_ENCODER:
        shown = None if options.method == _EVOLUTION else pool
        released = run(spec_of(options, data.schema), data, account=UnchargedAccount(), public=shown).generator
        images, targets = released.draw_training_set(options.images, seed=options.seed)
        if options.show is not None:
            grid(released).save(options.show, optimize=True)
    seconds = time.process_time() - began
    score = find_floor(data, options) if options.method == _FLOOR else taught(images, targets, data, options.seed)
    return {
        "dataset": options.dataset,
        "method": options.method,
        "encoder": options.encoder,
        "pool": options.pool,
        "epsilon": options.epsilon,
        "seed": options.seed,
        "settings": options.settings,
        "private_images": len(data.train.labels),
        "pool_images": len(pool.train.labels),
        "accuracy": round(score.accuracy, 1),
        "balanced": round(score.balanced, 1),
        "seconds": round(seconds, 1),
        "images": options.images,
        "judge": 2,
    }


def spec_of(options: argparse.Namespace, schema: Schema) -> TrainingSpec:
    """The job."""
    encoder = f"{_PLACE_OF_ENCODER[options.method]}={options.encoder}"
    settings = [encoder, *options.settings]
    pool = None if options.method == _EVOLUTION else "ds_1"
    asked = SpecOptions(options.epsilon, DELTA, options.method, settings=settings, seed=options.seed, public_data=pool)
    return asked.build_spec(schema)


def taught(images: Images, targets: Targets, data: Dataset, seed: int) -> Score:
    """How a student labels the real test images."""
    test = require_test_split(data)
    network = downstream.train_network(images, targets, data.schema.num_classes, seed=seed, device="cpu")
    return Score.from_labels(downstream.label_images(network, test.images, "cpu"), test.labels)


def find_floor(data: Dataset, options: argparse.Namespace) -> Score:
    """How the nearest noisy average of the private images labels them."""
    budget = {"epsilon": options.epsilon, "delta": DELTA}
    return class_average_score(data.train, require_test_split(data), data.schema, seed=options.seed, **budget)


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", required=True, choices=[*_PLACE_OF_ENCODER, _REAL, _FLOOR])
    parser.add_argument("--dataset", choices=DATASETS, default="cifar10")
    parser.add_argument("--encoder", default="imagenet-lite0", choices=["scattering", "imagenet-lite0"])
    parser.add_argument("--pool", default="other", choices=["other", "same"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--show", type=Path, metavar="FILE", help="also draw ten images of each class")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    print_result({**provenance(), **measure(parser.parse_args())})


if __name__ == "__main__":
    main()
