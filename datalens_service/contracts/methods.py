"""The contract of a method, tried on made-up records: planned equals charged, and no unit moves what others contribute.

The second is a replay: a run on neighbouring records meets the stored sums of the first run, like a resumed
job, and makes one step. If a unit contributes a function of itself and of released values, its change moves
the exact sum by what is charged at most, and by the same whatever another unit holds:

    S(a, b) - S(a', b) - S(a, b') + S(a', b') = 0

A private mean, norm, count or choice breaks that. Sums get no noise here: nobody has these records.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms import AnyMechanism, VoteMechanism
from datalens_service.methods.base import Method, Plan
from datalens_service.methods.driver import Training
from datalens_service.methods.script import RunInputs
from datalens_service.privacy.accounting import NeighboringRelation, limit_units
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

EPSILON: Final = 8.0
SCHEMA: Final = Schema(channels=1, height=8, width=8, class_names=("a", "b", "c"), num_units=40)
"""Schema of the made-up records."""

_DELTA: Final = 1e-3
_RARE: Final = 2
_KEY: Final = b"k" * 32
_ONE, _OTHER = 7, 20
"""The units in which neighbours differ."""
_RELATION: Final = NeighboringRelation.REPLACE_ONE

Sums = dict[int, NDArray[np.int64]]


@dataclass(frozen=True)
class Finding:
    """The result for one point of the contract."""

    point: str
    complaint: str | None = None


class _Rehearsal:
    """An account of made-up records: earlier sums are replayed, the others are kept as they come."""

    def __init__(self, earlier: Sums) -> None:
        self.sums = dict(earlier)
        self.ledger_units = 0
        self.labels: list[str] = []

    def replay(self, step: int) -> NDArray[np.int64] | None:
        return self.sums.get(step)

    def charge(self, step: int, label: str, ledger_units: int, slack: int = 0) -> None:
        self.ledger_units += ledger_units
        self.labels.append(label)

    def charge_draw(self, step: int, label: str, block: Any) -> int:
        drawn = self.labels.count(label)
        self.ledger_units += 0 if drawn else block.charge().ledger_units
        self.labels.append(label)
        return drawn

    def store(self, step: int, noisy: NDArray[np.int64]) -> None:
        self.sums[step] = noisy

    def advance(self, step: int, state: Any, iterates: Any = None) -> None:
        """Keep the sums, since a neighbour replays them all."""

    def latest(self) -> None:
        return None

    def iterates(self) -> list[NDArray[np.float32]]:
        return []


class _NoNoise:
    """Draws no noise, for records that nobody has; coins fall the same for neighbours."""

    def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> NDArray[np.int64]:
        return np.zeros(shape, dtype=np.int64)

    def coins(self, count: int, numerator: int) -> NDArray[np.bool_]:
        return np.tile([False, True], count)[:count]

    def directions(self, means: NDArray[np.float64], kappa: float) -> NDArray[np.float64]:
        return means


def check_method(method: Method, steps: int = 4) -> Iterator[Finding]:
    """Try a method, and yield one finding per point.

    Args:
        method: A method with parameters that are quick on 40 records of 8 by 8 pixels.
        steps: Number of its first steps that are repeated on neighbours.
    """
    dataset = _dataset(*_records())
    limit = limit_units(EPSILON, _DELTA)
    plan = method.plan_within(dataset.schema, EPSILON, _DELTA)
    yield judge("A plan fits into its budget", plan.cost() <= limit, f"{plan.cost()} of {limit} units")
    account = _Rehearsal({})
    training = _create(method, plan, dataset, account)
    _advance(training, plan.steps)
    path = training.plan
    same = (account.ledger_units, len(account.labels)) == (path.cost(), path.steps) and path in plan.paths()
    yield judge("A run charges what was planned", same, f"planned {path.cost()}, charged {account.ledger_units} units")
    model = training.outcome().model
    yield judge("The result is of the stated kind", model.result == method.result, f"it is a {model.result}")
    mechanisms = [release.mechanism for release in path.releases for _ in range(release.count)]
    for step, mechanism in enumerate(mechanisms[:steps]):
        yield from _compare(method, plan, account.sums, step, mechanism)


def _compare(method: Method, plan: Plan, sums: Sums, step: int, mechanism: AnyMechanism) -> Iterator[Finding]:
    """Compare the sums of a step on four data sets: two units, each with two records to choose from."""
    first, one, other, both = (_compute_sum(method, plan, changed, sums, step) for changed in _neighbors())
    name = f"step {step}, {mechanism.label()}"
    allowed = mechanism.sensitivity_squared(_RELATION) * mechanism.queries_per_unit(_RELATION)
    squared = max(_squared_length(first - one), _squared_length(first - other))
    complaint = f"a unit moved the sum by {_root(squared)}, and {_root(allowed)} is charged"
    yield judge(f"A unit moves a sum by no more than is charged: {name}", squared <= allowed, complaint)
    if isinstance(mechanism, VoteMechanism):
        # Two units may share a teacher, whose vote is a function of both.
        return
    interaction = _squared_length(first - one - other + both)
    complaint = f"two units together moved the sum by {_root(interaction)} more than each alone"
    yield judge(f"A unit moves nothing of what others contribute: {name}", interaction == 0, complaint)


def _compute_sum(method: Method, plan: Plan, dataset: Dataset, sums: Sums, step: int) -> NDArray[Any]:
    """Compute the exact sum of a step over a data set, after the earlier sums of the first run, in Python integers."""
    account = _Rehearsal({number: stored for number, stored in sums.items() if number < step})
    _advance(_create(method, plan, dataset, account), step + 1)
    return account.sums[step].astype(object)


def judge(point: str, holds: bool, complaint: str) -> Finding:
    return Finding(point, None if holds else complaint)


def _create(method: Method, plan: Plan, dataset: Dataset, account: _Rehearsal) -> Training:
    return Training(method, plan, dataset, account, RunInputs(TrainingRandomness(0)))


def _advance(training: Training, steps: int) -> None:
    while training.made < steps and training.look() is not None:
        training.step(cast(NoiseSource, _NoNoise()))


def _squared_length(difference: NDArray[Any]) -> int:
    return sum(value * value for value in difference.ravel().tolist())


def _root(squared: Fraction | int) -> str:
    return f"{float(squared) ** 0.5:.4g}"


def _records() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Make up records; one is as long as an image can be, and alone in its class."""
    rng = np.random.default_rng(5)
    labels = np.arange(SCHEMA.num_units, dtype=np.int64) % _RARE
    images = rng.integers(0, 120, (SCHEMA.num_units, SCHEMA.height, SCHEMA.width, 1)).astype(np.uint8)
    images[_ONE], labels[_ONE] = 255, _RARE
    return images, labels


def _neighbors() -> Iterator[Dataset]:
    """Yield the records, then with one unit dark and in another class, with another white, and with both."""
    for dark, white in itertools.product((False, True), repeat=2):
        images, labels = _records()
        if white:
            images[_OTHER], labels[_OTHER] = 255, _RARE
        if dark:
            images[_ONE], labels[_ONE] = 0, 0
        yield _dataset(images, labels)


def _dataset(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> Dataset:
    return Dataset(SCHEMA, Split(images, labels), None, _KEY)
