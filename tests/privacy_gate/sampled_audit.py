"""An audit of sampled sums: the worst neighbours, told apart by the sums of many runs.

Every unit has a coordinate of its own, so each coordinate of a release is an experiment: one coin, one noise, and a
gradient that is as long as any, or none.
"""

import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from datalens_service.mechanisms import GradientChunk, GradientSum
from datalens_service.privacy.accounting import NeighboringRelation, compute_slack, epsilon_of_charge
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.poisson_sampling import PoissonSampling, choose_numerator
from datalens_service.privacy.randomness import Booleans, NoiseSource

Floats = NDArray[np.float64]

_EXPERIMENTS: Final = 1000
"""Of one release: units, and coordinates."""

_SETTINGS: Final = {1: (0.75, 0.6, 0.1), 50: (0.25, 1.5, 0.05)}
"""By number of steps: q, σ/C, and a δ that so many runs can resolve."""

_MISTAKE: Final = 5e-4


def declared_and_found(steps: int, runs: int) -> tuple[float, float]:
    """ε that the account states, and a lower bound of it at 99.9 % (Nasr et al. 2021) from that many runs.

    Args:
        steps: Of each run, 1 or 50.
        runs: With the unit, and as many without; a multiple of a thousand.
    """
    probability, multiplier, delta = _SETTINGS[steps]
    mechanism = _sampled(probability, multiplier, steps, delta)
    scores = [_scores(mechanism, steps, runs, present=present) for present in (True, False)]
    return epsilon_of_charge(mechanism.sampling.charge(), delta), epsilon_lower_bound(*scores, delta)


def epsilon_lower_bound(first: Floats, second: Floats, delta: float) -> float:
    """Threshold and order are chosen on one half of the scores, and counted on the other.

    Args:
        first: Scores of one data set, the higher ones.
        second: Scores of its neighbour, as many.
        delta: Of the guarantee.
    """
    half = len(first) // 2
    orders = ((first, second), (-second, -first))
    bars = np.linspace(0.3, 0.9995, 200)
    tried = [
        (_bound(high[:half], low[:half], bar, delta), number, bar)
        for number, (high, low) in enumerate(orders)
        for bar in np.quantile(low[:half], bars)
    ]
    _, number, bar = max(tried)
    high, low = orders[number]
    return _bound(high[half:], low[half:], bar, delta)


def _bound(high: Floats, low: Floats, bar: float, delta: float) -> float:
    """ln((power − δ)/(false alarms)), both at the unlikely end (Clopper–Pearson)."""
    hits, alarms = int((high > bar).sum()), int((low > bar).sum())
    power = stats.beta.ppf(_MISTAKE, hits, len(high) - hits + 1) if hits else 0.0
    false = stats.beta.ppf(1 - _MISTAKE, alarms + 1, len(low) - alarms) if alarms < len(low) else 1.0
    return math.log(max(power - delta, 1e-12) / false)


def _sampled(probability: float, multiplier: float, steps: int, delta: float) -> GradientSum:
    mechanism = GradientSum(dimensions=_EXPERIMENTS, clip_norm=1.0, noise_stddev=10**5)
    stddev = math.ceil(multiplier * mechanism.radius)
    mechanism = mechanism.model_copy(update={"noise_stddev": stddev})
    block = PoissonSampling.priced(
        mechanism.noise_multiplier(), num_units=_EXPERIMENTS, draws=steps, slack=compute_slack(delta, 0.05),
        numerator=choose_numerator(round(probability * _EXPERIMENTS), _EXPERIMENTS),
    )  # fmt: skip
    return mechanism.model_copy(update={"sampling": block})


def _scores(mechanism: GradientSum, steps: int, runs: int, *, present: bool) -> Floats:
    """(runs,) log-likelihood ratios of whole runs."""
    scores = [_of_one_account(mechanism, steps, present) for _ in range(runs // _EXPERIMENTS)]
    return np.concatenate(scores)


def _of_one_account(mechanism: GradientSum, steps: int, present: bool) -> Floats:
    account = MemoryAccount(mechanism.cost(NeighboringRelation.ZERO_OUT))
    rows = 2 * torch.eye(_EXPERIMENTS)

    def gradients(batch: Booleans) -> list[GradientChunk]:
        units = torch.from_numpy(np.flatnonzero(batch & present))
        return [GradientChunk(rows[units], units)]

    scores, shift = np.zeros(_EXPERIMENTS), mechanism.grid / mechanism.noise_stddev
    for step in range(steps):
        mechanism.release(gradients, step=step, account=account, noise=NoiseSource())
        seen = account.replay(step) / mechanism.noise_stddev
        scores += np.log1p(mechanism.sampling.probability * np.expm1(seen * shift - shift**2 / 2))
    return scores
