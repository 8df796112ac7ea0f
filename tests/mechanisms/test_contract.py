"""What every mechanism must keep, walked over the registry (soundness R5 to R7, R15, R17)."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from datalens_service.errors import BudgetExceeded
from datalens_service.mechanisms import AnyMechanism, Mechanism, OuterProductSum, TopAgg, VectorSum
from datalens_service.mechanisms.moments import Vectors
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource

ZERO_OUT, REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE
UNITS, TEACHERS, IMAGES, PIXELS = 40, 12, 3, 30


def vectors(rng: np.random.Generator, groups: int, dimensions: int) -> Vectors:
    values = rng.standard_normal((UNITS, dimensions)) * rng.choice([1e-3, 0.3, 5.0], size=(UNITS, 1))
    return Vectors(values, rng.integers(groups, size=UNITS))


def gradients(rng: np.random.Generator, *_: int) -> list[torch.Tensor]:
    return [torch.tensor(rng.standard_normal((TEACHERS, IMAGES, PIXELS)), dtype=torch.float32)]


def empty_record(rng: np.random.Generator, data: Vectors) -> Vectors:
    """Zero-out: the record's row vanishes from every sum."""
    keep = np.arange(len(data.groups)) != rng.integers(len(data.groups))
    return Vectors(data.values[keep], data.groups[keep])


def replaced_record(rng: np.random.Generator, data: Vectors) -> Vectors:
    values, groups = data.values.copy(), data.groups.copy()
    row = rng.integers(len(groups))
    values[row] = rng.choice([-1.0, 1.0]) * values[row] * rng.choice([1.0, 100.0])
    if rng.random() < 0.5:
        groups[row] = rng.integers(groups.max() + 1)
    return Vectors(values, groups)


def other_teacher(rng: np.random.Generator, data: list[torch.Tensor]) -> list[torch.Tensor]:
    """One teacher saw another shard: its gradients are arbitrary, not finite included."""
    changed = data[0].clone()
    teacher = int(rng.integers(TEACHERS))
    kind = rng.integers(4)
    if kind == 0:
        changed[teacher] *= -1
    elif kind == 1:
        changed[teacher] = float("nan")
    elif kind == 2:
        changed[teacher, :, 0] = float("inf")
    else:
        changed[teacher] = torch.tensor(rng.standard_normal((IMAGES, PIXELS)), dtype=torch.float32) * 1e30
    return [changed]


@dataclass(frozen=True)
class Case:
    mechanism: Mechanism
    make: Callable
    neighbors: dict
    attained: Callable
    """Builds two neighbouring inputs that should attain the zero-out sensitivity."""


def flipped_signs() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """A teacher whose every vote flips, on one image only."""
    base = torch.zeros(TEACHERS, IMAGES, PIXELS)
    base[4, 1] = torch.arange(1, PIXELS + 1)
    other = base.clone()
    other[4, 1] *= -1
    return [base], [other]


def one_long_vector(dimensions: int) -> Callable[[], tuple[Vectors, Vectors]]:
    def build() -> tuple[Vectors, Vectors]:
        values = np.zeros((2, dimensions))
        values[1, 0] = 7.0
        return Vectors(values, np.zeros(2, dtype=np.int64)), Vectors(values[:1], np.zeros(1, dtype=np.int64))

    return build


def topagg(**changes: object) -> TopAgg:
    defaults: dict = {
        "num_teachers": TEACHERS, "images": IMAGES, "dimensions": PIXELS, "top_k": 8, "clip": 1.0,
        "stochastic": False, "threshold": "none", "noise_stddev": 500,
    }  # fmt: skip
    return TopAgg(**(defaults | changes))


RECORDS = {ZERO_OUT: empty_record, REPLACE_ONE: replaced_record}
VOTES = {ZERO_OUT: other_teacher, REPLACE_ONE: other_teacher}
CASES = [
    Case(topagg(), gradients, VOTES, flipped_signs),
    Case(topagg(stochastic=True, clip=0.5), gradients, VOTES, flipped_signs),
    Case(
        VectorSum(num_groups=3, dimensions=9, count_weight=683, noise_stddev=20_000),
        lambda rng: vectors(rng, 3, 9), RECORDS, one_long_vector(9),
    ),
    Case(
        OuterProductSum(num_groups=3, dimensions=9, noise_stddev=10_000_000),
        lambda rng: vectors(rng, 3, 9), RECORDS, one_long_vector(9),
    ),
    Case(
        OuterProductSum(num_groups=1, dimensions=9, noise_stddev=10_000_000),
        lambda rng: vectors(rng, 1, 9), RECORDS, one_long_vector(9),
    ),
]  # fmt: skip
IDS = [f"{case.mechanism.label()}-{index}" for index, case in enumerate(CASES)]


def distance_squared(mechanism: Mechanism, first: object, second: object) -> int:
    """Largest squared L2 distance of any single query between two inputs."""
    difference = mechanism.total(first) - mechanism.total(second)
    per_query = difference.reshape(mechanism.images, -1) if isinstance(mechanism, TopAgg) else difference.reshape(1, -1)
    return int((per_query.astype(object) ** 2).sum(axis=1).max())


def test_every_registered_mechanism_has_a_case():
    registered = set(typing.get_args(AnyMechanism))
    assert {type(case.mechanism) for case in CASES} == registered
    for mechanism in registered:
        assert mechanism.release is Mechanism.release, "the door is final"
        assert mechanism.cost is Mechanism.cost


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_neighbors_never_exceed_the_sensitivity(case, relation):
    rng = np.random.default_rng(1)
    for _ in range(300):
        data = case.make(rng)
        neighbor = case.neighbors[relation](rng, data)
        assert distance_squared(case.mechanism, data, neighbor) <= case.mechanism.sensitivity_squared(relation)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_worst_neighbor_attains_the_sensitivity(case):
    """Tight: for the grid mechanisms up to the allowance for rounding."""
    worst = distance_squared(case.mechanism, *case.attained())
    bound = case.mechanism.sensitivity_squared(ZERO_OUT)
    allowance = 1 if isinstance(case.mechanism, TopAgg) else Fraction(99, 100)
    assert allowance * bound <= worst <= bound


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_rows_that_are_not_finite_contribute_nothing(case):
    rng = np.random.default_rng(2)
    data = case.make(rng)
    if isinstance(case.mechanism, TopAgg):
        broken = torch.full((4, IMAGES, PIXELS), float("nan"))
        broken[1, :, 3], broken[2, 0, 0] = float("inf"), float("-inf")
        broken[3] = 0.0
        with_broken = [*data, broken]
    else:
        bad = np.full((2, data.values.shape[1]), np.nan)
        bad[1] = [np.inf, *([0.0] * (data.values.shape[1] - 1))]
        with_broken = Vectors(np.concatenate([data.values, bad]), np.concatenate([data.groups, [0, 0]]))
    difference = np.abs(case.mechanism.total(data) - case.mechanism.total(with_broken))
    if isinstance(case.mechanism, VectorSum):
        assert difference[0, 0] == 2 * case.mechanism.count_weight, "such a record still counts as a record"
        difference[0, 0] = 0
    assert not difference.any()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_coordinate_gets_noise_of_the_stated_scale(case):
    noise = NoiseSource()
    data = case.make(np.random.default_rng(3))
    exact = case.mechanism.total(data)
    draws = []
    for step in range(max(30, 20_000 // exact.size)):
        account = MemoryAccount(case.mechanism.cost())
        case.mechanism.release(lambda: data, step=step, account=account, noise=noise)
        stored = account.replay(step)
        assert stored is not None
        draws.append((stored - exact) / case.mechanism.noise_stddev)
    sample = np.array(draws)
    assert (sample.std(axis=0) > 0.4).all(), "no coordinate is left without noise"
    flat = sample.ravel()
    assert stats.kstest(flat, "norm").pvalue > 1e-6
    assert stats.kstest(flat * 1.5, "norm").pvalue < 1e-6, "the test rejects a wrong scale"


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_charge_comes_before_the_draw(case):
    data = case.make(np.random.default_rng(4))

    class NoDraw:
        def discrete_gaussian(self, shape, noise_stddev):
            raise AssertionError("noise was drawn although the charge was refused")

    account = MemoryAccount(case.mechanism.cost() - 1)
    with pytest.raises(BudgetExceeded):
        case.mechanism.release(lambda: data, step=0, account=account, noise=NoDraw())
    assert account.charges == []
    assert account.replay(0) is None


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_stored_step_is_handed_out_again_without_reading_records(case):
    account = MemoryAccount(case.mechanism.cost())
    data = case.make(np.random.default_rng(5))
    first = case.mechanism.release(lambda: data, step=0, account=account, noise=NoiseSource())

    def forbidden():
        raise AssertionError("a replayed step must not read private records")

    again = case.mechanism.release(forbidden, step=0, account=account, noise=NoiseSource())
    np.testing.assert_array_equal(first, again)
    assert account.charged_units == case.mechanism.cost()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_cost_depends_on_public_parameters_alone(case):
    copy = type(case.mechanism).model_validate(case.mechanism.model_dump())
    assert copy.cost() == case.mechanism.cost()
    assert case.mechanism.cost(REPLACE_ONE) >= case.mechanism.cost(ZERO_OUT)


def test_mechanism_level_audit_of_topagg():
    """A distinguisher of the worst neighbours finds nearly all of the declared μ, and never more."""
    mechanism = topagg(top_k=PIXELS, images=1, noise_stddev=200)
    base = torch.ones(1, 1, PIXELS)
    runs = 20_000
    exact = [mechanism.total([sign * base]).ravel() for sign in (1, -1)]
    noise = NoiseSource().discrete_gaussian((2, runs, PIXELS), mechanism.noise_stddev)
    scores = [(exact[side] + noise[side]).sum(axis=1) for side in (0, 1)]
    declared = 2 * np.sqrt(PIXELS) / np.sqrt(mechanism.noise_stddev**2 - 9)
    estimate = (scores[0].mean() - scores[1].mean()) / np.sqrt((scores[0].var() + scores[1].var()) / 2)
    error = np.sqrt(2 / runs)
    assert estimate - 4 * error <= declared
    assert estimate >= 0.9 * declared
