"""What public images give an owner: students that see a pool as a job released it, and nothing else.

    python -m benchmarks.pools --method labelled_pool --epsilon 1 >> benchmarks/results/pools.jsonl
    python -m benchmarks.pools --method public_votes --pool same
    python -m benchmarks.pools --method private_evolution --set images=4000
    python -m benchmarks.pools --method real

10,000 training images of CIFAR-10 are drawn by the seed. Those of airplane, cat, deer, frog and truck, about 5,000, are
private; the others, of five other classes, are the pool. With `--pool same` it is as many other images of the private
classes, without labels. Students are the standard CNN, from nothing, last epoch, on 5,000 real test images. `real` is
a student of the private images in as many steps. `private_evolution` gets no pool: its generator draws by rules.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

import numpy as np

from benchmarks.environment import PARTITION_KEY, provenance, public_set
from benchmarks.kept_results import print_result
from benchmarks.utility import trained_on
from datalens_service.cli.specs import SpecOptions
from datalens_service.data.dataset import Dataset, Images, Labels, Schema, Split, Upload
from datalens_service.evaluation.metrics.downstream import Targets
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

DELTA: Final = 1e-5
PRIVATE: Final = ("airplane", "cat", "deer", "frog", "truck")
_DRAWN: Final = 10_000
_REAL: Final = "real"
_EVOLUTION: Final = "private_evolution"
_PLACE_OF_ENCODER: Final = {"labelled_pool": "classifier.encoder", "public_votes": "encoder", _EVOLUTION: "encoder"}


def draw(pool: str, seed: int) -> tuple[Dataset, Upload]:
    """Private images of five classes with their test images, and a pool beside them."""
    upload = public_set("cifar10")
    names, order = upload.schema.class_names, np.random.default_rng(seed).permutation(len(upload.train.labels))
    labels = np.array([PRIVATE.index(name) if name in PRIVATE else -1 for name in names])
    private, public = split(upload.train, labels, order[:_DRAWN], inside=True), order[:_DRAWN]
    if pool == "same":
        public = order[_DRAWN : 2 * _DRAWN]
    others = split(upload.train, labels, public, inside=pool == "same")
    if upload.test is None:
        raise SystemExit("the set has no test images")
    test = split(upload.test, labels, np.arange(len(upload.test.labels)), inside=True)
    schema = upload.schema.model_copy(update={"class_names": PRIVATE, "num_units": len(private.labels)})
    unlabelled = schema.model_copy(
        update={"class_names": ("photograph",), "num_units": len(others.labels), "records_are_public": True}
    )
    without = Split(others.images, np.zeros(len(others.labels), dtype=np.int64))
    return Dataset(schema, private, test, PARTITION_KEY), Upload(unlabelled, without, None)


def split(images: Split, labels: Labels, rows: Labels, *, inside: bool) -> Split:
    """Images of the private classes, or of the others, with the labels of the private ones."""
    rows = np.sort(rows)
    found = labels[images.labels[rows]]
    kept = rows[(found >= 0) == inside]
    return Split(np.asarray(images.images[kept]), labels[images.labels[kept]])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """A student of what a job released, or of the private images."""
    data, pool = draw(options.pool, options.seed)
    began = time.process_time()
    images: Images = data.train.images
    targets: Targets = data.train.labels
    released = None
    if options.method != _REAL:
        shown = None if options.method == _EVOLUTION else pool
        released = run(spec_of(options, data.schema), data, account=UnchargedAccount(), public=shown).generator
        images, targets = released.draw_training_set(options.images, seed=options.seed)
    seconds = time.process_time() - began
    return {
        "method": options.method,
        "encoder": options.encoder,
        "pool": options.pool,
        "epsilon": options.epsilon,
        "seed": options.seed,
        "settings": options.settings,
        "private_images": len(data.train.labels),
        "pool_images": len(pool.train.labels),
        "accuracy": taught(images, targets, data, options.seed),
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


def taught(images: Images, targets: Targets, data: Dataset, seed: int) -> float:
    """Percent of the real test images that a student labels rightly."""
    return round(trained_on(images, targets, data, seed), 1)


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", required=True, choices=[*_PLACE_OF_ENCODER, _REAL])
    parser.add_argument("--encoder", default="imagenet-lite0", choices=["scattering", "imagenet-lite0"])
    parser.add_argument("--pool", default="other", choices=["other", "same"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    print_result({**provenance(), **measure(parser.parse_args())})


if __name__ == "__main__":
    main()
