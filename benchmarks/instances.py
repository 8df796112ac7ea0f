"""Accounting with estimated norms as clipping bounds (Yu et al. 2022, algorithm 1), on one linear layer.

    python -m benchmarks.instances accuracy --dataset mnist --seed 0
    python -m benchmarks.instances estimates --dataset cifar10_features --rule "the paper's, K = 2"
    python -m benchmarks.instances rounding --dataset mnist
    python -m benchmarks.instances bound --dataset cifar10_features --factor 0.5

A record's gradient is an outer product, (p − y)·xᵀ with the bias, so all norms of a data set are known at once.
Sampling rate, noise and number of steps are the paper's: 4,000 of 60,000, σ = 6, 1,500 steps, and 4,000 of 50,000,
σ = 3.2, 2,500 steps for CIFAR-10; the records are 10,000, in batches of as large a part. The largest bound C is the
median norm at the first weights, which on public images is public.

`accuracy` is table 1: a single bound C, or one for each record. `estimates` is figure 3: ε by bounds beside ε by the
norms at every step, of the first 1,000 records, by a rule of `RULES`. `rounding` is what rounding to C/100 adds to
rounding to C/1000. `bound` is figure 8, with so many times C. Noise is drawn in floating point: these runs protect
nobody.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr

from benchmarks.environment import dataset, provenance, require_test_split
from benchmarks.kept_results import print_result
from datalens_service.data.dataset import Images, Labels
from datalens_service.privacy.individual import SampledAccountant
from datalens_service.privacy.randomness import Integers

Floats = NDArray[np.floating[Any]]

DELTA: Final = 1e-5
LEVELS: Final = 100
FINE: Final = 1000
_MOMENTUM: Final = 0.9
_RECORDS: Final = 10_000
_LOOKED_AT: Final = 1000
"""Records whose ε is computed."""


class Setting(NamedTuple):
    """Of the paper's appendix B, and a rate for one layer."""

    probability: float
    noise_multiplier: float
    steps: int
    rate: float


SETTINGS: Final = {
    "mnist": Setting(4000 / 60_000, 6.0, 1500, 0.05),
    "fashion_mnist": Setting(4000 / 60_000, 6.0, 1500, 0.05),
    "cifar10_features": Setting(4000 / 50_000, 3.2, 2500, 0.05),
}


class Rule(NamedTuple):
    """When bounds are estimated anew."""

    title: str
    per_pass: int
    """Times that norms of all records are computed."""
    when_drawn: bool
    """Whether a record's bound changes after steps that took it, as the paper has it."""


SINGLE: Final = Rule("C for all", 0, when_drawn=False)
PUBLIC: Final = "on a public schedule alone, K = 2"
RULES: Final = {
    rule.title: rule
    for rule in (
        *(Rule(f"the paper's, K = {times}", times, when_drawn=True) for times in (0, 1, 2, 3)),
        Rule(PUBLIC, 2, when_drawn=False),
    )
}


@dataclass
class Layer:
    """A linear layer with a bias, on rows that end in 1."""

    rows: Floats
    labels: Labels
    weights: Floats = field(init=False)
    lengths: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.weights = np.zeros((self.rows.shape[1], int(self.labels.max()) + 1), dtype=np.float32)
        self.lengths = np.linalg.norm(self.rows, axis=1)

    def errors(self, chosen: Integers | slice) -> Floats:
        """(chosen, classes) p − y."""
        scores = self.rows[chosen] @ self.weights
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        scores[np.arange(len(scores)), self.labels[chosen]] -= 1
        return scores

    def norms(self, chosen: Integers | slice) -> Floats:
        """(chosen,) lengths of gradients."""
        return np.linalg.norm(self.errors(chosen), axis=1) * self.lengths[chosen]

    def accuracy(self, images: Images, labels: Labels) -> float:
        """Percent."""
        return round(100 * float(np.mean((as_rows(images) @ self.weights).argmax(axis=1) == labels)), 2)


def as_rows(images: Images) -> Floats:
    """Numbers in [−1, 1], and 1."""
    centered = images.reshape(len(images), -1).astype(np.float32) / np.float32(127.5) - 1
    return np.concatenate([centered, np.ones((len(images), 1), dtype=np.float32)], axis=1)


class Charged(NamedTuple):
    """Of a run: how often each looked-at record had each level (records, levels + 1)."""

    layer: Layer
    bounds: Integers
    """Charged with the bound that clipped."""
    as_printed: Integers
    """With the bound after the step, as the paper prints it."""
    actual: Integers
    """By the norms at every step."""
    above: float
    """Share of contributions that a bound below C shortened."""


def train(layer: Layer, setting: Setting, rule: Rule, seed: int, factor: float = 1.0, levels: int = LEVELS) -> Charged:
    """Algorithm 1.

    Args:
        factor: C over the median norm at the first weights.
        levels: Bounds are multiples of C over this, rounded up.
    """
    rng, count = np.random.default_rng(seed), len(layer.labels)
    largest = factor * float(np.median(layer.norms(slice(None))))
    bounds, velocity = np.full(count, levels), np.zeros_like(layer.weights)
    looked_at = min(_LOOKED_AT, count)
    tables = [np.zeros((looked_at, levels + 1), dtype=np.int64) for _ in range(3)]
    refreshes = _refreshes(setting, rule)
    contributions = shortened = 0
    for step in range(setting.steps):
        if step in refreshes:
            bounds = _levels(layer.norms(slice(None)), largest, levels)
        before, now = bounds[:looked_at].copy(), _levels(layer.norms(slice(looked_at)), largest, levels)
        drawn = np.flatnonzero(rng.random(count) < setting.probability)
        errors = layer.errors(drawn)
        norms = np.linalg.norm(errors, axis=1) * layer.lengths[drawn]
        most = bounds[drawn] * (largest / levels)
        contributions += len(drawn)
        shortened += int((np.minimum(norms, largest) > most).sum())
        clipped = errors * np.minimum(1, most / np.maximum(norms, 1e-12))[:, None]
        noise = setting.noise_multiplier * largest * rng.standard_normal(layer.weights.shape, dtype=np.float32)
        gradient = (layer.rows[drawn].T @ clipped + noise) / (setting.probability * count)
        velocity = _MOMENTUM * velocity + gradient / largest
        layer.weights -= setting.rate * velocity
        if rule.when_drawn:
            bounds[drawn] = _levels(norms, largest, levels)
        for table, charged in zip(tables, (before, bounds[:looked_at], now), strict=True):
            table[np.arange(looked_at), charged] += 1
    return Charged(layer, tables[0], tables[1], tables[2], shortened / contributions)


def _refreshes(setting: Setting, rule: Rule) -> set[int]:
    """Steps before which norms of all records are computed: public."""
    count = round(rule.per_pass * setting.steps * setting.probability)
    return {round(each * setting.steps / count) for each in range(count)}


def _levels(norms: Floats, largest: float, levels: int) -> Integers:
    """Rounded up, and at most C."""
    return np.ceil(np.minimum(norms / largest, 1) * levels).astype(np.int64)


def epsilons(setting: Setting, table: Integers) -> Floats:
    """Of records."""
    levels = table.shape[1] - 1
    accountant = SampledAccountant(setting.probability, setting.noise_multiplier, np.inf, levels)
    return accountant.epsilons(table, DELTA)


def worst(setting: Setting) -> float:
    """ε of a record whose every norm is C, by the same accountant."""
    table = np.zeros((1, LEVELS + 1), dtype=np.int64)
    table[0, -1] = setting.steps
    return float(epsilons(setting, table)[0])


def measure_accuracy(options: argparse.Namespace) -> dict[str, Any]:
    """Table 1."""
    rows = []
    for rule in (SINGLE, RULES["the paper's, K = 2"], RULES[PUBLIC]):
        charged = _run(options, rule)
        rows.append({"rule": rule.title, "accuracy": _accuracy(charged, options), "shortened": charged.above})
    return {"rows": rows}


def measure_estimates(options: argparse.Namespace) -> dict[str, Any]:
    """Figure 3, and what charging in the printed order leaves out."""
    charged, setting = _run(options, RULES[options.rule]), SETTINGS[options.dataset]
    bounds, printed, actual = (epsilons(setting, table) for table in charged[1:4])
    difference = np.abs(bounds - actual)
    return {
        "rule": options.rule,
        "pearson": float(pearsonr(bounds, actual).statistic),
        "mean_error": float(difference.mean()),
        "largest_error": float(difference.max()),
        "mean": float(bounds.mean()),
        "mean_actual": float(actual.mean()),
        "below_actual": float(np.mean(bounds < actual)),
        "printed_below_charged": float(np.mean(printed < bounds)),
        "printed_mean": float(printed.mean()),
    }


def measure_rounding(options: argparse.Namespace) -> dict[str, Any]:
    """Of the same norms."""
    setting = SETTINGS[options.dataset]
    fine = train(_layer(options.dataset), setting, RULES["the paper's, K = 2"], options.seed, levels=FINE).actual[:100]
    more = epsilons(setting, _coarser(fine)) / epsilons(setting, fine) - 1
    return {
        "records": len(fine),
        "mean": float(more.mean()),
        "smallest": float(more.min()),
        "largest": float(more.max()),
    }


def _coarser(table: Integers) -> Integers:
    """The same norms in levels of C/100, rounded up."""
    places = -(-np.arange(FINE + 1) * LEVELS // FINE)
    return table @ (places[:, None] == np.arange(LEVELS + 1)).astype(np.int64)


def measure_bound(options: argparse.Namespace) -> dict[str, Any]:
    """Figure 8."""
    charged = _run(options, RULES["the paper's, K = 2"])
    values = epsilons(SETTINGS[options.dataset], charged.bounds)
    share = float(np.mean(values >= 0.99 * worst(SETTINGS[options.dataset])))
    quantiles = np.quantile(values, (0.1, 0.3, 0.5, 0.7, 0.9)).round(4).tolist()
    return {
        "factor": options.factor,
        "accuracy": _accuracy(charged, options),
        "mean": float(values.mean()),
        "quantiles": quantiles,
        "largest": float(values.max()),
        "share_within_1_percent_of_worst": share,
    }


def _run(options: argparse.Namespace, rule: Rule) -> Charged:
    return train(_layer(options.dataset), SETTINGS[options.dataset], rule, options.seed, options.factor)


def _accuracy(charged: Charged, options: argparse.Namespace) -> float:
    test = require_test_split(dataset(options.dataset))
    return charged.layer.accuracy(test.images, test.labels)


def _layer(name: str) -> Layer:
    data = dataset(name)
    return Layer(as_rows(data.train.images[:_RECORDS]), data.train.labels[:_RECORDS])


WHAT: Final = {
    "accuracy": measure_accuracy,
    "estimates": measure_estimates,
    "rounding": measure_rounding,
    "bound": measure_bound,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Estimated norms as clipping bounds.")
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--dataset", default="mnist", choices=SETTINGS)
    parser.add_argument("--rule", default=PUBLIC, choices=RULES, help="Of estimates.")
    parser.add_argument("--factor", type=float, default=1.0, help="C over the median norm at the first weights.")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    result = {"what": options.what, "dataset": options.dataset, "seed": options.seed, "records": _RECORDS}
    result |= {**SETTINGS[options.dataset]._asdict(), "delta": DELTA}
    result |= {"worst_epsilon": worst(SETTINGS[options.dataset])}
    print_result(result | WHAT[options.what](options) | {"environment": provenance()})


if __name__ == "__main__":
    main()
