"""Bugs in noise and in accounting."""

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from datalens_service import spec
from datalens_service.mechanisms import Mechanism, base
from datalens_service.privacy import accounting, randomness
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.store.ledger.account_summary import AccountSummary

from .plant import Plant

Draw = Callable[[NoiseSource, tuple[int, ...], int], np.ndarray]
_exact = NoiseSource.discrete_gaussian


def _draws(patch: pytest.MonkeyPatch, planted: Draw) -> None:
    patch.setattr(NoiseSource, "discrete_gaussian", planted)


def two_percent_low(patch: pytest.MonkeyPatch) -> None:
    """σ is 2 % too small."""
    _draws(patch, lambda self, shape, stddev: _exact(self, shape, max(1, round(0.98 * stddev))))


def root_two_low(patch: pytest.MonkeyPatch) -> None:
    """σ/√2: the variance of a difference taken for the variance of one."""
    _draws(patch, lambda self, shape, stddev: _exact(self, shape, max(1, round(stddev / math.sqrt(2)))))


def no_noise(patch: pytest.MonkeyPatch) -> None:
    """A debugging switch left on."""
    _draws(patch, lambda self, shape, stddev: np.zeros(shape, dtype=np.int64))


def fixed_seed(patch: pytest.MonkeyPatch) -> None:
    """The same noise in every run, as in the original."""

    def seeded(self: NoiseSource, shape: tuple[int, ...], stddev: int) -> np.ndarray:
        return np.rint(np.random.default_rng(307).normal(0, stddev, shape)).astype(np.int64)

    _draws(patch, seeded)


def global_generator(patch: pytest.MonkeyPatch) -> None:
    """Noise from the generator that everything else in the process seeds and reads."""

    def shared(self: NoiseSource, shape: tuple[int, ...], stddev: int) -> np.ndarray:
        return np.rint(np.random.normal(0, stddev, shape)).astype(np.int64)

    _draws(patch, shared)


def rounded_floats(patch: pytest.MonkeyPatch) -> None:
    """A float normal, well seeded and rounded: neither exact nor free of gaps."""

    def rounded(self: NoiseSource, shape: tuple[int, ...], stddev: int) -> np.ndarray:
        stream = np.random.default_rng(int.from_bytes(os.urandom(16), "big"))
        return np.rint(stream.normal(0, stddev, shape)).astype(np.int64)

    _draws(patch, rounded)


def laplace_tails(patch: pytest.MonkeyPatch) -> None:
    """The proposal is returned without the rejection, scaled to the right variance."""

    def proposed(self: NoiseSource, shape: tuple[int, ...], stddev: int) -> np.ndarray:
        size, scale = math.prod(shape), max(1, round(stddev / math.sqrt(2)))
        remainder, multiple, negative = randomness._discrete_laplace(3 * size + 64, scale)
        magnitude = remainder + scale * multiple
        return np.where(negative, -magnitude, magnitude)[:size].reshape(shape)

    _draws(patch, proposed)


def shared_across_a_batch(patch: pytest.MonkeyPatch) -> None:
    """One draw is broadcast over the images."""
    _draws(patch, lambda self, shape, stddev: np.broadcast_to(_exact(self, shape[-1:], stddev), shape).copy())


def reused_every_other_step(patch: pytest.MonkeyPatch) -> None:
    """A cache keyed by shape: the second release of a kind gets the noise of the first."""
    kept: dict[tuple[Any, ...], np.ndarray] = {}

    def cached(self: NoiseSource, shape: tuple[int, ...], stddev: int) -> np.ndarray:
        return kept.setdefault((shape, stddev), _exact(self, shape, stddev))

    _draws(patch, cached)


def kept_entropy(patch: pytest.MonkeyPatch) -> None:
    """Entropy is fetched ahead and kept; a forked worker inherits it."""
    words, stock = randomness._words, np.zeros(0, dtype=np.uint64)

    def stocked(size: int) -> np.ndarray:
        nonlocal stock
        if len(stock) < size:
            stock = words(max(size, 2**16))
        taken, stock = stock[:size].copy(), stock[size:]
        return taken

    patch.setattr(randomness, "_words", stocked)


def _released(patch: pytest.MonkeyPatch, noisy: Callable[[Mechanism, np.ndarray, NoiseSource], np.ndarray]) -> None:
    """Replace what `release` does between charge and store."""

    def release(self: Mechanism, contributions: Any, *, step: int, account: Any, noise: NoiseSource) -> Any:
        stored = account.replay(step)
        if stored is None:
            exact = self.exact_sum(contributions())
            account.charge(step, self.label(), self.cost())
            stored = noisy(self, exact, noise)
            account.store(step, stored)
        return self.decode(stored)

    patch.setattr(Mechanism, "release", release)


def only_where_there_are_votes(patch: pytest.MonkeyPatch) -> None:
    """Zero sums stay zero: where nobody votes is released exactly."""
    _released(
        patch, lambda self, exact, noise: exact + noise.discrete_gaussian(exact.shape, self.noise_stddev) * (exact != 0)
    )


def only_the_largest_get_noise(patch: pytest.MonkeyPatch) -> None:
    """Coordinates below half of the largest sum are set to zero instead."""

    def pruned(self: Mechanism, exact: np.ndarray, noise: NoiseSource) -> np.ndarray:
        noisy = exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)
        return np.where(2 * np.abs(exact) >= np.abs(exact).max(), noisy, 0)

    _released(patch, pruned)


def half_the_cost(patch: pytest.MonkeyPatch) -> None:
    """α/(2σ)² instead of α/(2σ²)."""
    cost = accounting.cost_units

    def halved(*arguments: Any, **named: Any) -> int:
        return cost(*arguments, **named) // 2

    for module in (accounting, base, spec):
        patch.setattr(module, "cost_units", halved)


def delta_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Every budget is converted at one δ."""
    mu_for_epsilon, epsilon_for_mu = accounting.mu_for_epsilon, accounting.epsilon_for_mu
    patch.setattr(accounting, "mu_for_epsilon", lambda epsilon, delta: mu_for_epsilon(epsilon, 1e-4))
    patch.setattr(accounting, "epsilon_for_mu", lambda mu, delta: epsilon_for_mu(mu, 1e-4))


def second_term_forgotten(patch: pytest.MonkeyPatch) -> None:
    """δ(ε) = Φ(μ/2 − ε/μ) taken for 1 − Φ(ε/μ): the shift by μ/2 is lost."""
    patch.setattr(accounting, "gaussian_delta", lambda mu, epsilon: 0.5 * math.erfc(epsilon / mu / math.sqrt(2)))


def epsilon_rounded_down(patch: pytest.MonkeyPatch) -> None:
    """0.79 is shown as 0.7."""
    for module in (accounting, spec):
        patch.setattr(module, "round_up", accounting.round_down)


def remaining_rounded_up(patch: pytest.MonkeyPatch) -> None:
    """More is said to remain than there is."""
    remaining = property(lambda self: accounting.round_up(self.convert_units(self.remaining_units), 2))
    patch.setattr(AccountSummary, "epsilon_remaining", remaining)


def large_deltas_accepted(patch: pytest.MonkeyPatch) -> None:
    """δ = 0.01 for any number of records."""
    for module in (accounting, spec):
        patch.setattr(module, "check_delta", lambda delta, num_units: None)


def price_looks_at_votes(patch: pytest.MonkeyPatch) -> None:
    """A data-dependent charge: cheaper when the teachers agree."""

    def release(self: Mechanism, contributions: Any, *, step: int, account: Any, noise: NoiseSource) -> Any:
        exact = self.exact_sum(contributions())
        agreement = np.abs(exact).max() / max(1, np.abs(exact).sum())
        account.charge(step, self.label(), math.ceil(self.cost() * (1 - agreement / 2)))
        stored = exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)
        account.store(step, stored)
        return self.decode(stored)

    patch.setattr(Mechanism, "release", release)


PLANTS = (
    Plant("sigma 2 % low", "R7", two_percent_low),
    Plant("sigma divided by √2", "R34", root_two_low),
    Plant("no noise", "R34", no_noise),
    Plant("fixed seed", "B1", fixed_seed),
    Plant("noise from the global generator", "B2", global_generator),
    Plant("noise by rounded float normals", "B23", rounded_floats),
    Plant("Laplace tails instead of Gaussian ones", "R7", laplace_tails),
    Plant("noise shared across a batch", "R7", shared_across_a_batch),
    Plant("noise kept and used again", "R7", reused_every_other_step),
    Plant("entropy kept across a fork", "R9", kept_entropy),
    Plant("noise on non-zero coordinates only", "R7", only_where_there_are_votes),
    Plant("small sums set to zero before release", "R7", only_the_largest_get_noise),
    Plant("cost divided by two", "B9", half_the_cost),
    Plant("δ ignored", "R10", delta_is_ignored),
    Plant("wrong conversion from μ to δ", "R10", second_term_forgotten),
    Plant("ε rounded down", "B19", epsilon_rounded_down),
    Plant("remaining budget rounded up", "R29", remaining_rounded_up),
    Plant("δ of 1/n and more accepted", "B20", large_deltas_accepted),
    Plant("charge depends on the votes", "B7", price_looks_at_votes),
)
