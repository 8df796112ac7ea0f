"""Bugs in noise and in accounting."""

import math
import os

import numpy as np

from datalens_service import spec
from datalens_service.mechanisms import Mechanism, base
from datalens_service.privacy import accounting, randomness
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.store.ledger.account_summary import AccountSummary

from .plant import around, plant, replaces

_DRAW = (NoiseSource, "discrete_gaussian")


@around("sigma 2 % low", "R7", *_DRAW)
def two_percent_low(draw, self, shape, stddev):
    """σ is 2 % too small."""
    return draw(self, shape, max(1, round(0.98 * stddev)))


@around("sigma divided by √2", "R34", *_DRAW)
def root_two_low(draw, self, shape, stddev):
    """σ/√2: the variance of a difference taken for the variance of one."""
    return draw(self, shape, max(1, round(stddev / math.sqrt(2))))


@replaces("no noise", "R34", *_DRAW)
def no_noise(self, shape, stddev):
    """A debugging switch left on."""
    return np.zeros(shape, dtype=np.int64)


@replaces("fixed seed", "B1", *_DRAW)
def fixed_seed(self, shape, stddev):
    """The same noise in every run, as in the original."""
    return np.rint(np.random.default_rng(307).normal(0, stddev, shape)).astype(np.int64)


@replaces("noise from the global generator", "B2", *_DRAW)
def global_generator(self, shape, stddev):
    """Noise from the generator that everything else in the process seeds and reads."""
    return np.rint(np.random.normal(0, stddev, shape)).astype(np.int64)


@replaces("noise by rounded float normals", "B23", *_DRAW)
def rounded_floats(self, shape, stddev):
    """A float normal, well seeded and rounded: neither exact nor free of gaps."""
    stream = np.random.default_rng(int.from_bytes(os.urandom(16), "big"))
    return np.rint(stream.normal(0, stddev, shape)).astype(np.int64)


@replaces("Laplace tails instead of Gaussian ones", "R7", *_DRAW)
def laplace_tails(self, shape, stddev):
    """The proposal is returned without the rejection, scaled to the right variance."""
    size, scale = math.prod(shape), max(1, round(stddev / math.sqrt(2)))
    remainder, multiple, negative = randomness._discrete_laplace(3 * size + 64, scale)
    magnitude = remainder + scale * multiple
    return np.where(negative, -magnitude, magnitude)[:size].reshape(shape)


@around("noise shared across a batch", "R7", *_DRAW)
def shared_across_a_batch(draw, self, shape, stddev):
    """One draw is broadcast over the images."""
    return np.broadcast_to(draw(self, shape[-1:], stddev), shape).copy()


@plant("noise kept and used again", "R7")
def reused_every_other_step(patch):
    """A cache keyed by shape: the second release of a kind gets the noise of the first."""
    draw, kept = NoiseSource.discrete_gaussian, {}
    cached = lambda self, *key: kept.setdefault(key, draw(self, *key))  # noqa: E731
    patch.setattr(NoiseSource, "discrete_gaussian", cached)


@plant("entropy kept across a fork", "R9")
def kept_entropy(patch):
    """Entropy is fetched ahead and kept; a forked worker inherits it."""
    words, stock = randomness._words, np.zeros(0, dtype=np.uint64)

    def stocked(size: int) -> np.ndarray:
        nonlocal stock
        if len(stock) < size:
            stock = words(max(size, 2**16))
        taken, stock = stock[:size].copy(), stock[size:]
        return taken

    patch.setattr(randomness, "_words", stocked)


def _released(self, contributions, step, account, noisy):
    """What `release` does, with `noisy` of the exact sum in the place of its noise."""
    stored = account.replay(step)
    if stored is None:
        exact = self.exact_sum(contributions())
        account.charge(step, self.label(), self.cost())
        stored = noisy(exact)
        account.store(step, stored)
    return self.decode(stored)


@replaces("noise on non-zero coordinates only", "R7", Mechanism, "release")
def only_where_there_are_votes(self, contributions, *, step, account, noise):
    """Zero sums stay zero: where nobody votes is released exactly."""

    def sparse(exact):
        return exact + noise.discrete_gaussian(exact.shape, self.noise_stddev) * (exact != 0)

    return _released(self, contributions, step, account, sparse)


@replaces("small sums set to zero before release", "R7", Mechanism, "release")
def only_the_largest_get_noise(self, contributions, *, step, account, noise):
    """Coordinates below half of the largest sum are set to zero instead."""

    def pruned(exact):
        noisy = exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)
        return np.where(2 * np.abs(exact) >= np.abs(exact).max(), noisy, 0)

    return _released(self, contributions, step, account, pruned)


@around("cost divided by two", "B9", (accounting, base, spec), "cost_ledger_units")
def half_the_cost(cost, *arguments, **named):
    """α/(2σ)² instead of α/(2σ²)."""
    return cost(*arguments, **named) // 2


@plant("δ ignored", "R10")
def delta_is_ignored(patch):
    """Every budget is converted at one δ."""
    mu_for_epsilon, epsilon_for_mu = accounting.mu_for_epsilon, accounting.epsilon_for_mu
    patch.setattr(accounting, "mu_for_epsilon", lambda epsilon, delta: mu_for_epsilon(epsilon, 1e-4))
    patch.setattr(accounting, "epsilon_for_mu", lambda mu, delta: epsilon_for_mu(mu, 1e-4))


@replaces("wrong conversion from μ to δ", "R10", accounting, "gaussian_delta")
def second_term_forgotten(mu, epsilon):
    """δ(ε) = Φ(μ/2 − ε/μ) taken for 1 − Φ(ε/μ): the shift by μ/2 is lost."""
    return 0.5 * math.erfc(epsilon / mu / math.sqrt(2))


@replaces("ε rounded down", "B19", (accounting, spec), "stated_epsilon")
def epsilon_rounded_down(charge, delta):
    """0.79996 is shown as 0.7999."""
    return accounting.round_down(accounting.epsilon_of_charge(charge, delta))


@replaces("remaining budget rounded up", "R29", AccountSummary, "epsilon_remaining")
def remaining_rounded_up(self):
    """More is said to remain than there is."""
    return accounting.round_up(self.convert_to_epsilon(self.remaining_units), 2)


@replaces("δ of 1/n and more accepted", "B20", (accounting, spec), "check_delta")
def large_deltas_accepted(delta, num_units):
    """δ = 0.01 for any number of records."""


@replaces("charge depends on the votes", "B7", Mechanism, "release")
def price_looks_at_votes(self, contributions, *, step, account, noise):
    """A data-dependent charge: cheaper when the teachers agree."""
    exact = self.exact_sum(contributions())
    agreement = np.abs(exact).max() / max(1, np.abs(exact).sum())
    account.charge(step, self.label(), math.ceil(self.cost() * (1 - agreement / 2)))
    stored = exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)
    account.store(step, stored)
    return self.decode(stored)
