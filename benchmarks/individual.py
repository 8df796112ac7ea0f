"""Realised individual ε on public images: its spread, how far estimates of the histogram are off, and what is released.

    python -m benchmarks.individual --dataset mnist --epsilon 1 --records 500 > result.json
    python -m benchmarks.individual --batch 4000 --steps 300 --noise-multiplier 6 --epsilon 0.8

`exact` looks at every iterate, for some records; `estimated` at every `histogram_every`-th, as the histogram does;
`released` is what the job hands out about all records.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from benchmarks.environment import dataset, provenance
from benchmarks.kept_results import print_result
from datalens_service.data.dataset import Dataset, Split
from datalens_service.mechanisms import IndividualHistogram
from datalens_service.mechanisms.private_records import Rows
from datalens_service.mechanisms.unit_records import as_tensors
from datalens_service.methods import DpSgd
from datalens_service.methods.descent.individual_norms import build_accountant, squared_norms
from datalens_service.methods.descent.iterates import read_iterates
from datalens_service.methods.descent.unit_gradients import image_gradients
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.individual import level_table, norm_levels
from datalens_service.privacy.randomness import Integers
from datalens_service.run import Result, run
from datalens_service.spec import TrainingSpec

PARTS = (0.1, 0.3, 0.5, 0.7, 0.9)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """A job, and the individual ε of its first records."""
    data = dataset(options.dataset)
    method = DpSgd(
        architecture=options.architecture, sampling="poisson", batch=options.batch, steps=options.steps,
        learning_rate=options.learning_rate, clip_norm=options.clip_norm, noise_multiplier=options.noise_multiplier,
        accounting="per_instance", histogram_noise=100,
    )  # fmt: skip
    spec = TrainingSpec(method=method, epsilon=options.epsilon, delta=1e-5)
    began = time.process_time()
    result = run(spec, data, account=MemoryAccount(spec.limit_units(data.schema), (spec.epsilon, 1e-5)))
    seconds = time.process_time() - began
    split = Split(data.train.images[: options.records], data.train.labels[: options.records])
    some = replace(data, schema=data.schema.model_copy(update={"num_units": options.records}), train=split)
    histogram, released = result.plan.releases[-1].mechanism, result.extras.individual
    if not isinstance(histogram, IndividualHistogram) or released is None:
        raise SystemExit("the job released no histogram")
    levels = _levels(method, result, some)
    exact = _epsilons(result, levels, histogram, 1)
    estimated = _epsilons(result, levels, histogram, histogram.every)
    losses = -np.log(result.model.predict(split.images)[np.arange(options.records), split.labels])  # type: ignore[attr-defined]
    return {
        "method": method.model_dump(mode="json"),
        "dataset": options.dataset,
        "epsilon_at_plan": result.cost.epsilon_at_plan,
        "accuracy": _percent(result, data),
        "records": options.records,
        "every": histogram.every,
        "exact": _statistics(exact),
        "estimated": _statistics(estimated),
        "released": released.model_dump(exclude={"noisy_counts"}),
        "share_within_1_percent_of_the_job": float(np.mean(exact >= 0.99 * result.cost.epsilon_at_plan)),
        "pearson_of_estimate": float(pearsonr(exact, estimated).statistic),
        "mean_error_of_estimate": float(np.abs(exact - estimated).mean()),
        "spearman_with_final_loss": float(spearmanr(exact, losses).statistic),
        "processor_seconds_of_the_job": seconds,
    }


def _percent(result: Result, data: Dataset) -> float:
    if data.test is None:
        raise SystemExit("the dataset has no test split")
    predicted = result.model.predict(data.test.images).argmax(axis=1)  # type: ignore[attr-defined]
    return round(100 * float(np.mean(predicted == data.test.labels)), 2)


def _levels(method: DpSgd, result: Result, some: Dataset) -> Integers:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "iterates"
        result.extras.files[0].write(path)
        values, _ = read_iterates(path)
    mechanism: Any = result.plan.releases[0].mechanism
    network = build_network({"architecture": method.architecture}, some.schema)
    rows = as_tensors(Rows(some.train.images, some.train.labels, some.train.unit_ids), "cpu")
    norms = squared_norms(rows, image_gradients(network, some.schema), mechanism, values)
    return norm_levels(norms, mechanism.radius)


def _epsilons(result: Result, levels: Integers, histogram: IndividualHistogram, every: int) -> NDArray[np.float64]:
    mechanism = result.plan.releases[0].mechanism
    steps = np.diff([*range(0, len(levels), every), len(levels)])
    accountant = build_accountant(mechanism, result.cost.epsilon_at_plan, histogram.cost())  # type: ignore[arg-type]
    return accountant.epsilons(level_table(levels[::every], steps), histogram.delta)


def _statistics(epsilons: NDArray[np.float64]) -> dict[str, Any]:
    quantiles = {str(part): round(float(np.quantile(epsilons, part)), 4) for part in PARTS}
    return {"mean": round(float(epsilons.mean()), 4), "quantiles": quantiles}


def main() -> None:
    parser = argparse.ArgumentParser(description="Realised individual epsilon of a job on public images.")
    parser.add_argument("--dataset", default="mnist", choices=["mnist", "fashion_mnist"])
    parser.add_argument("--architecture", default="small_cnn")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--clip-norm", type=float, default=1.0)
    parser.add_argument("--noise-multiplier", type=float, help="Left out, the smallest that fits into epsilon.")
    parser.add_argument("--learning-rate", type=float, default=0.25)
    parser.add_argument("--records", type=int, default=500)
    print_result(measure(parser.parse_args()) | {"environment": provenance()})


if __name__ == "__main__":
    main()
