"""The noise has the stated distribution, is exact, and never repeats."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import datalens_service
from datalens_service.base.errors import InvalidSpec
from datalens_service.privacy import randomness
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from privacy_gate.exact_noise import expect_exact

SOURCE = NoiseSource()
CHANCE = 1e-10
"""Probability of a false alarm of one comparison: there is no seed, and the suite runs often."""


@pytest.mark.parametrize("stddev", [1, 2, 3, 7, 20, 50])
def test_distribution_is_the_discrete_gaussian(stddev):
    expect_exact(stddev, draws=400_000)


@pytest.mark.parametrize("stddev", [800, 5000, MAXIMUM_NOISE_STDDEV])
def test_scale_is_right_and_two_percent_would_show(stddev):
    draws = SOURCE.discrete_gaussian((1_000_000,), stddev) / stddev
    standard_error = np.sqrt(2 / draws.size)
    assert abs(draws.var() - 1) < 6.5 * standard_error
    assert abs(0.98**2 - 1) > 13 * standard_error, "the test has the power it claims"
    assert stats.kstest(draws[:100_000], "norm").pvalue > CHANCE


def test_noise_source_has_no_seed_and_no_state():
    assert list(inspect.signature(NoiseSource).parameters) == []
    assert set(inspect.signature(NoiseSource.discrete_gaussian).parameters) == {"self", "shape", "noise_stddev"}
    assert vars(NoiseSource()) == {}


def test_no_other_generator_in_privacy_and_mechanisms():
    """Only TrainingRandomness may touch a seeded generator, and no mechanism may draw noise by itself."""
    root = Path(datalens_service.__file__).parent
    for path in [*(root / "privacy").glob("*.py"), *(root / "mechanisms").glob("*.py")]:
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        banned = {"normal", "standard_normal", "randn", "randn_like", "laplace", "RandomState"}
        assert not names & banned, path.name
    assert "default_rng" not in inspect.getsource(NoiseSource)


@pytest.mark.parametrize("stddev", [0, -1, MAXIMUM_NOISE_STDDEV + 1])
def test_scales_that_int64_cannot_carry_are_refused(stddev):
    with pytest.raises(InvalidSpec):
        SOURCE.discrete_gaussian((1,), stddev)


def test_broken_entropy_is_noticed(monkeypatch):
    monkeypatch.setattr(randomness, "_words", lambda size: np.zeros(size, dtype=np.uint64))
    with pytest.raises(ArithmeticError, match="entropy"):
        SOURCE.discrete_gaussian((10,), 100)


def test_training_randomness_is_addressed_by_purpose_and_step():
    first, again, other = TrainingRandomness(3), TrainingRandomness(3), TrainingRandomness(4)
    assert first.seed("votes", 5) == again.seed("votes", 5)
    assert len({first.seed("votes", 5), first.seed("votes", 6), first.seed("z", 5), other.seed("votes", 5)}) == 4


@pytest.mark.parametrize("numerator", [1, 2**53 // 117, 2**52, 2**53 - 1])
def test_coins_fall_with_the_stated_probability(numerator):
    count = 400_000
    heads = int(NoiseSource().coins(count, numerator).sum())
    assert stats.binomtest(heads, count, numerator / 2**53).pvalue > CHANCE


def test_coins_of_probability_0_and_1_are_certain():
    assert not NoiseSource().coins(1000, 0).any()
    assert NoiseSource().coins(1000, 2**53).all()


def test_coins_of_two_units_are_independent_and_never_repeat():
    pairs = np.array([NoiseSource().coins(2, 2**52) for _ in range(4000)])
    table = [[int((pairs == (first, second)).all(axis=1).sum()) for second in (0, 1)] for first in (0, 1)]
    assert stats.chi2_contingency(table).pvalue > CHANCE
    first, second = (NoiseSource().coins(256, 2**52) for _ in range(2))
    assert not np.array_equal(first, second)


def test_a_coin_compares_all_of_its_bits(monkeypatch):
    """The smallest probability is one word in 2^53, not none and not one in 2^32."""
    words = np.array([0, 2**11 - 1, 2**11, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(randomness, "_words", lambda size: words[:size])
    assert NoiseSource().coins(4, 1).tolist() == [True, True, False, False]
    assert NoiseSource().coins(4, 2**53 - 1).tolist() == [True, True, True, False]


@pytest.mark.parametrize("numerator", [-1, 2**53 + 1])
def test_coins_of_no_probability_are_refused(numerator):
    with pytest.raises(InvalidSpec, match="probability"):
        NoiseSource().coins(3, numerator)
