"""Realised individual ε on public images: its spread, how far estimates of the histogram are off, and what is released.

    python -m benchmarks.individual --dataset mnist --epsilon 1 --records 500 > result.json
    python -m benchmarks.individual --batch 4000 --steps 300 --noise-multiplier 6 --epsilon 0.8
    python -m benchmarks.individual --dataset fashion_mnist --draw 10000 --records 2000 --batch 667 --steps 300 \
        --noise-multiplier 2 --epsilon 3

`exact` looks at every iterate, for some records; `estimated` at every `histogram_every`-th, as the histogram does;
`released` is what the job hands out about all records. `classes` and `groups` are what the owner alone may compute:
mean exact ε and mean loss, as Yu et al. 2022 compare them (figures 6 and 9); `tenths` is their figure 5 and `fifths`
their figure 2.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from benchmarks.environment import dataset, provenance, require_test_split, with_records
from benchmarks.kept_results import print_result
from benchmarks.panel import Cell, draw
from datalens_service.data.dataset import Dataset, Labels
from datalens_service.mechanisms import IndividualHistogram
from datalens_service.mechanisms.private_records import Rows
from datalens_service.mechanisms.unit_records import as_tensors
from datalens_service.methods import DpSgd
from datalens_service.methods.descent.individual_norms import build_accountant, squared_norms
from datalens_service.methods.descent.iterates import read_iterates
from datalens_service.methods.descent.unit_gradients import image_gradients
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.individual import DEFAULT_LEVELS, level_table, norm_levels
from datalens_service.privacy.randomness import Integers
from datalens_service.spec import TrainingSpec
from datalens_service.training import Result, run

PARTS = (0.1, 0.3, 0.5, 0.7, 0.9)

GROUPS = {
    "cifar10_features": {
        "animals": ("bird", "cat", "deer", "dog", "frog", "horse"),
        "vehicles": ("airplane", "automobile", "ship", "truck"),
    },
    "fashion_mnist": {"shoes": ("5", "7", "9"), "tops": ("0", "2", "4", "6")},
    "mnist": {"straight": ("1", "4", "7"), "round": ("0", "6", "8", "9")},
}
"""Declared subgroups: sets of classes."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """A job, and the individual ε of its first records."""
    data = draw(Cell(options.dataset, options.draw, options.epsilon), 0) if options.draw else dataset(options.dataset)
    method = DpSgd(
        architecture=options.architecture, sampling="poisson", batch=options.batch, steps=options.steps,
        learning_rate=options.learning_rate, clip_norm=options.clip_norm, noise_multiplier=options.noise_multiplier,
        accounting="per_instance", histogram_noise=100,
    )  # fmt: skip
    spec = TrainingSpec(method=method, epsilon=options.epsilon, delta=1e-5)
    began = time.process_time()
    result = run(spec, data, account=MemoryAccount(spec.limit_units(data.schema), (spec.epsilon, 1e-5)))
    seconds = time.process_time() - began
    some = with_records(data, np.arange(options.records))
    histogram, released = result.plan.releases[-1].mechanism, result.extras.individual
    if not isinstance(histogram, IndividualHistogram) or released is None:
        raise SystemExit("the job released no histogram")
    levels = _levels(method, result, some)
    exact = _epsilons(result, levels, histogram, 1)
    estimated = _epsilons(result, levels, histogram, histogram.every)
    losses = -np.log(result.model.predict(some.train.images)[np.arange(options.records), some.train.labels])  # type: ignore[attr-defined]
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
        "draw": options.draw,
        **_by_group(exact, losses, some.train.labels, data.schema.class_names, GROUPS[options.dataset]),
        "tenths": _by_part(losses, exact, 10),
        "fifths": _norms_by_part(levels, 5),
        "share_within_1_percent_of_the_job": float(np.mean(exact >= 0.99 * result.cost.epsilon_at_plan)),
        "pearson_of_estimate": float(pearsonr(exact, estimated).statistic),
        "mean_error_of_estimate": float(np.abs(exact - estimated).mean()),
        "spearman_with_final_loss": float(spearmanr(exact, losses).statistic),
        "processor_seconds_of_the_job": seconds,
    }


def _by_group(
    epsilons: NDArray[np.float64],
    losses: NDArray[np.float64],
    labels: Labels,
    names: tuple[str, ...],
    groups: dict[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Mean ε and loss of each class and of each group, largest ε first, and the correlation over classes."""
    classes = [{"class": name, **_means(epsilons, losses, labels == label)} for label, name in enumerate(names)]
    members = {name: np.isin(labels, [names.index(one) for one in chosen]) for name, chosen in groups.items()}
    means = [[one[figure] for one in classes] for figure in ("epsilon", "loss")]
    return {
        "classes": sorted(classes, key=lambda one: -one["epsilon"]),
        "groups": [{"group": name, **_means(epsilons, losses, chosen)} for name, chosen in members.items()],
        "pearson_over_classes": float(pearsonr(*means).statistic),
        "pearson_with_final_loss": float(pearsonr(epsilons, losses).statistic),
    }


def _means(epsilons: NDArray[np.float64], losses: NDArray[np.float64], chosen: NDArray[np.bool_]) -> dict[str, Any]:
    values = epsilons[chosen]
    return {
        "records": len(values),
        "epsilon": round(float(values.mean()), 4),
        "standard_error": round(float(values.std(ddof=1) / len(values) ** 0.5), 4),
        "loss": round(float(losses[chosen].mean()), 4),
    }


def _by_part(losses: NDArray[np.float64], epsilons: NDArray[np.float64], count: int) -> list[dict[str, float]]:
    """Mean loss and ε of records in the order of their losses, in so many parts."""
    parts = np.array_split(np.argsort(losses), count)
    return [{"loss": round(float(losses[rows].mean()), 4), "epsilon": round(float(epsilons[rows].mean()), 4)}
            for rows in parts]  # fmt: skip


def _norms_by_part(levels: Integers, count: int) -> list[list[float]]:
    """Mean norms, over the clipping norm, in the tenths of a run, of records in the order of their mean norm."""
    norms = levels / DEFAULT_LEVELS
    parts, times = np.array_split(np.argsort(norms.mean(axis=0)), count), np.array_split(np.arange(len(norms)), 10)
    return [[round(float(norms[np.ix_(steps, rows)].mean()), 3) for steps in times] for rows in parts]


def _percent(result: Result, data: Dataset) -> float:
    test = require_test_split(data)
    predicted = result.model.predict(test.images).argmax(axis=1)  # type: ignore[attr-defined]
    return round(100 * float(np.mean(predicted == test.labels)), 2)


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
    parser.add_argument("--dataset", default="mnist", choices=GROUPS)
    parser.add_argument("--draw", type=int, help="Take so many training images only; all of a set without it.")
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
