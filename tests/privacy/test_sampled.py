"""Three known pairs, the limit without sampling, and what is refused."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import InvalidSpec
from datalens_service.privacy import sampled
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.dominance import poisson_gaussian_curve
from datalens_service.privacy.sampled import LOSS_INTERVAL, poisson_sampled_epsilon
from tests.privacy_gate.sampled_audit import declared_and_found

UNITS = 60_000
ZERO_OUT, REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE


@pytest.mark.parametrize(
    ("batch", "steps", "noise_multiplier"), [(512, 1172, 1.3321), (1024, 586, 1.7559), (2048, 300, 2.4045)]
)
def test_known_noise_of_one_epsilon(batch: int, steps: int, noise_multiplier: float) -> None:
    """Golden numbers have four digits: half a unit of the last one more or less is on either side of ε = 1."""
    below, above = (
        poisson_sampled_epsilon(noise_multiplier + change, batch / UNITS, steps, 1e-5, ZERO_OUT)
        for change in (6e-5, -6e-5)
    )
    assert below < 1 < above < below + 5e-4


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("noise_multiplier", 0.0, "noise multiplier"),
        ("noise_multiplier", math.inf, "noise multiplier"),
        ("noise_multiplier", math.nan, "noise multiplier"),
        ("sampling_probability", 0.0, "probability of sampling"),
        ("sampling_probability", 1.01, "probability of sampling"),
        ("sampling_probability", math.nan, "probability of sampling"),
        ("steps", 0, "number of steps"),
        ("delta", 0.0, "δ"),
        ("delta", 1.0, "δ"),
    ],
)
def test_arguments_out_of_range(name: str, value: float, words: str) -> None:
    arguments: dict[str, Any] = {"noise_multiplier": 1.0, "sampling_probability": 0.01, "steps": 100, "delta": 1e-5}
    with pytest.raises(InvalidSpec, match=words):
        poisson_sampled_epsilon(**{**arguments, name: value}, relation=ZERO_OUT)


def test_the_same_run_is_accounted_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan, its page and its report ask for the same figure."""
    first = poisson_sampled_epsilon(7.5, 0.01, 3, 1e-5, ZERO_OUT)
    monkeypatch.setattr(sampled, "poisson_sampled_losses", None)
    assert poisson_sampled_epsilon(7.5, 0.01, 3, 1e-5, ZERO_OUT) == first


def test_fifty_sampled_steps_show_a_part_of_what_is_charged_and_no_more() -> None:
    declared, found = declared_and_found(steps=50, runs=20_000)
    # Simulated audits show 0.84 of ε with twice as many runs, with a standard deviation of 0.03.
    assert 0.6 * declared <= found <= declared


PROBABILITY, STDDEV = 0.3, 0.9
"""Contributions are at most 1 long."""

LOSSES = (0.0, 0.1, 0.3, 0.7, 1.2)
STEP = 0.1
AXIS = np.arange(-5.5, 5.5 + STEP, STEP)
ZERO, LONGEST = np.zeros(2), np.array([1.0, 0.0])
# Sums over the grid are off by less.
EXACTNESS = 2e-4

Vector = np.ndarray


def normal(mean: Vector) -> np.ndarray:
    squares = (AXIS[:, None] - mean[0]) ** 2 + (AXIS[None] - mean[1]) ** 2
    return np.exp(-squares / (2 * STDDEV**2)) * STEP**2 / (2 * np.pi * STDDEV**2)


def sampled_law(contribution: Vector) -> np.ndarray:
    """Law of the sum of a batch that nobody else is in."""
    return (1 - PROBABILITY) * normal(ZERO) + PROBABILITY * normal(contribution)


def advantages(first: Vector, second: Vector) -> np.ndarray:
    """For each loss x the largest P(S) − e^x·Q(S), in the better order."""
    laws = sampled_law(first), sampled_law(second)
    orders = [[np.maximum(p - np.exp(x) * q, 0).sum() for x in LOSSES] for p, q in (laws, laws[::-1])]
    return np.max(orders, axis=0)


@cache
def priced(relation: NeighboringRelation) -> np.ndarray:
    """What the account takes for one step."""
    curve = poisson_gaussian_curve(STDDEV, PROBABILITY, 1, relation)
    return curve.deltas[[round(x / LOSS_INTERVAL) for x in LOSSES]]


def contributions() -> Iterator[Vector]:
    """In a half of the plane, which turns into the other half."""
    for length in (0.5, 1.0):
        for angle in np.linspace(0, np.pi, 5):
            yield length * np.array([np.cos(angle), np.sin(angle)])


RELATIONS = {NeighboringRelation.ZERO_OUT: ZERO, NeighboringRelation.REPLACE_ONE: -LONGEST}
"""What the longest contribution is replaced by in the worst case."""


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_pair_that_is_priced_is_attained(relation: NeighboringRelation) -> None:
    np.testing.assert_allclose(advantages(LONGEST, RELATIONS[relation]), priced(relation), atol=EXACTNESS)


def test_no_contribution_is_worse_to_empty_than_the_longest() -> None:
    bound = priced(NeighboringRelation.ZERO_OUT) + EXACTNESS
    for contribution in contributions():
        assert (advantages(contribution, ZERO) <= bound).all()


def test_no_contributions_are_worse_to_exchange_than_opposite_ones() -> None:
    bound = priced(NeighboringRelation.REPLACE_ONE) + EXACTNESS
    for length in (0.0, 0.5, 1.0):
        for other in contributions():
            assert (advantages(length * LONGEST, other) <= bound).all()


def test_contributions_of_other_units_only_hide_a_unit() -> None:
    """Somebody else is in the batch by a coin of its own."""
    other = np.array([0.6, 0.8])

    def together(contribution: Vector) -> np.ndarray:
        alone = sampled_law(contribution)
        shifted = (1 - PROBABILITY) * normal(other) + PROBABILITY * normal(contribution + other)
        return (1 - PROBABILITY) * alone + PROBABILITY * shifted

    p, q = together(LONGEST), together(-LONGEST)
    hidden = np.array([np.maximum(p - np.exp(x) * q, 0).sum() for x in LOSSES])
    assert (hidden <= priced(NeighboringRelation.REPLACE_ONE) + EXACTNESS).all()
    assert (hidden < advantages(LONGEST, -LONGEST)).all()
