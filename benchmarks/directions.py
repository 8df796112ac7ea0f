"""What von Mises-Fisher noise leaves of a classifier: one pass over Fashion-MNIST, as JSON.

    python -m benchmarks.directions --kappa 250 --learning-rate 0.0003 --seeds 3

Settings of directional privacy (Faustini et al. 2023): batches of 100, Adam at 0.001; one pass instead of 30, because
the sampler of the product takes minutes for it; `benchmarks.direction_passes` has more passes, and gradients that keep
their lengths. The paper states ε_V = 2·kappa. Runs keep no books, because at its largest kappa no account could: images
of the set are public. `--held-out` is for choosing settings: the last 10,000 training images take the place of the test
images.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.environment import dataset, provenance, without_test_images
from benchmarks.kept_results import print_result
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.mechanisms import PlannedRelease, VonMisesFisherSum
from datalens_service.methods import DpSgd, Plan
from datalens_service.methods.descent.noisy_directions import PartitionedRun, mean_cosine
from datalens_service.methods.script import RunInputs
from datalens_service.methods.training import Training
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.classifiers.sizes import num_weights
from datalens_service.privacy.accounting import NeighboringRelation, epsilon_for_mu
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.privacy.partitioned_passes import PartitionedPasses, partition_units
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

DELTA = 1e-5


class WithoutNoise(NoiseSource):
    """Directions as they are: what the same descent reaches without privacy."""

    def directions(self, means: NDArray[np.float64], kappa: float) -> NDArray[np.float64]:
        return means


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Percent of test images that classifiers label correctly after one pass."""
    data = dataset(options.dataset)
    if options.held_out:
        data = without_test_images(data)
    method = DpSgd(
        architecture=options.architecture, steps=options.steps, batch=options.batch, noise="von_mises_fisher",
        sampling="partition", kappa=options.kappa or 1.0, optimizer="adam", learning_rate=options.learning_rate,
        averaging=0.0,
    )  # fmt: skip
    scores, seconds = [], []
    for seed in range(options.seeds):
        began = time.process_time()
        scores.append(_accuracy(_train_once(method, data, seed, options), data))
        seconds.append(time.process_time() - began)
        print(f"seed {seed}: {scores[-1]}", file=sys.stderr)
    return {
        "dataset": options.dataset,
        "method": method.model_dump(mode="json", exclude_defaults=True),
        "noise": options.kappa is not None,
        **({"judged_by": "training images left out"} if options.held_out else {}),
        **_price(directions(method, data.schema), noisy=options.kappa is not None),
        "seeds": options.seeds,
        "accuracies": scores,
        "mean": statistics.mean(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else None,
        "processor_seconds": statistics.mean(seconds),
    }


def _train_once(method: DpSgd, data: Dataset, seed: int, options: argparse.Namespace) -> Classifier:
    noise = WithoutNoise() if options.kappa is None else NoiseSource()
    return train_without_books(method, data, seed, noise)


def _price(mechanism: VonMisesFisherSum, *, noisy: bool) -> dict[str, Any]:
    mu = 1 / mechanism.noise_multiplier() * mechanism.partition.passes**0.5
    return {
        "kappa": mechanism.kappa,
        "weights": mechanism.dimensions,
        "mean_cosine": mean_cosine(mechanism.kappa, mechanism.dimensions),
        "passes": mechanism.partition.passes,
        "delta": DELTA,
        "epsilon": epsilon_for_mu(mu, DELTA) if noisy else None,
    }


def directions(method: DpSgd, schema: Schema) -> VonMisesFisherSum:
    """The release of every step, also with a kappa for which no account has numbers."""
    run = PartitionedRun(schema, num_weights(method.architecture, schema), method.batch or 1, method.steps)
    stddev = run.choose_stddev(method.kappa or 1.0)
    unpriced = PartitionedPasses(
        num_units=schema.num_units, batches=run.batches, passes=run.passes, units_zero_out=1, units_replace_one=1
    )
    mechanism = VonMisesFisherSum(dimensions=run.dimensions, partition=unpriced, noise_stddev=stddev)
    multiplier = mechanism.noise_multiplier()
    price = [partition_units(multiplier, run.passes, relation) for relation in NeighboringRelation]
    partition = unpriced.model_copy(update={"units_zero_out": price[0], "units_replace_one": price[1]})
    return mechanism.model_copy(update={"partition": partition})


def train_without_books(method: DpSgd, data: Dataset, seed: int, noise: NoiseSource) -> Classifier:
    """A classifier of public records, whatever it would cost."""
    plan = Plan(releases=(PlannedRelease(mechanism=directions(method, data.schema), count=method.steps),))
    inputs = RunInputs(TrainingRandomness(seed))
    training = Training(method, plan, data, UnchargedAccount(), inputs)
    for _ in range(method.steps):
        training.step(noise)
    model = training.outcome().model
    if not isinstance(model, Classifier):
        raise TypeError("DP-SGD makes a classifier")
    return model


def _accuracy(model: Classifier, data: Dataset) -> float:
    if data.test is None:
        raise SystemExit("the dataset has no test split")
    predicted = model.predict(data.test.images).argmax(axis=1)
    return round(100 * float(np.mean(predicted == data.test.labels)), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Classifiers from noisy directions.")
    parser.add_argument("--dataset", default="fashion_mnist", choices=["mnist", "fashion_mnist"])
    parser.add_argument(
        "--architecture", default="lenet_relu", choices=["small_cnn", "lenet", "lenet_relu", "mlp", "linear"]
    )
    parser.add_argument("--kappa", type=float, help="Left out: no noise.")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--held-out", action="store_true", help="judge by training images that were left out")
    print_result(train(parser.parse_args()) | {"environment": provenance()})


if __name__ == "__main__":
    main()
