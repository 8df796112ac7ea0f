"""ε of Gaussian mechanisms on Poisson-sampled batches, through dp_accounting.

Sampling lowers ε only if every unit enters every batch by its own coin of probability q, the divisor is the public
q·n, empty batches release noise too, coins and noise come from a source nobody can predict, and nobody learns who
was in a batch. Shuffled batches are not Poisson samples: counting them as such has understated ε fourfold and more
(Chua et al. 2024; Annamalai et al. 2024).
"""

import functools
import math
from typing import Any, Final

from datalens_service.base.errors import InvalidDelta, InvalidSpec
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.recomputation import pld_accountant

LOSS_INTERVAL: Final = 1e-4
"""Privacy losses are rounded up to multiples of it."""

# Zero-out puts a contribution of zero in the place of a unit's own.
_RELATIONS: Final = {NeighboringRelation.ZERO_OUT: "REPLACE_SPECIAL", NeighboringRelation.REPLACE_ONE: "REPLACE_ONE"}


@functools.lru_cache(maxsize=1024)
def poisson_sampled_epsilon(
    noise_multiplier: float, sampling_probability: float, steps: int, delta: float, relation: NeighboringRelation
) -> float:
    """Return ε of `steps` noisy sums over Poisson-sampled batches, from privacy loss distributions, rounded up.

    Args:
        noise_multiplier: σ/C for contributions of L2 norm at most C, under both relations; the function itself allows
            for a replaced unit, which moves a sum by 2C.
        delta: In (0, 1).

    Raises:
        InvalidSpec: An argument is out of its range.
        InvalidDelta: δ is out of its range.
    """
    if not 0 < delta < 1:
        raise InvalidDelta("δ must lie strictly between 0 and 1.")
    losses = poisson_sampled_losses(noise_multiplier, sampling_probability, steps, relation)
    return float(losses.get_epsilon_for_delta(delta))


def poisson_sampled_losses(
    noise_multiplier: float, sampling_probability: float, steps: int, relation: NeighboringRelation
) -> Any:
    """Return the loss distribution of dp_accounting for such sums: every δ(ε) of it is at least the true one.

    Returns:
        A PrivacyLossDistribution with losses at multiples of `LOSS_INTERVAL`.

    Raises:
        InvalidSpec: An argument is out of its range.
    """
    if not 0 < sampling_probability <= 1:
        raise InvalidSpec("The probability of sampling must lie above 0 and be at most 1.")
    if not (noise_multiplier > 0 and math.isfinite(noise_multiplier)):
        raise InvalidSpec("The noise multiplier must be a finite number above 0.")
    if steps < 1:
        raise InvalidSpec("The number of steps must be at least 1.")
    pld_accountant(_RELATIONS[relation])
    from datalens_service.privacy.gaussian_losses import compose_gaussian_losses

    replaced = relation == NeighboringRelation.REPLACE_ONE
    return compose_gaussian_losses(noise_multiplier, sampling_probability, steps, LOSS_INTERVAL, replaced=replaced)
