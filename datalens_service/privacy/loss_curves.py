"""The privacy curve of a loss distribution of dp_accounting at many losses at once.

dp_accounting's own way walks over all losses in Python, seconds for a single price. The sums here are the same, by
numpy, and are compared with it at some losses each time.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.errors import WorkerUnavailable

Floats = NDArray[np.float64]

_COMPARED: Final = 9
# Of sums of some 10^5 masses in another order.
_TOLERANCE: Final = 1e-12


def deltas_at_multiples(distribution: Any, interval: float, count: int) -> Floats:
    """(count,) δ(ε) at ε = 0, interval, 2·interval, …: the larger of both orders of two neighbours.

    Args:
        distribution: A PrivacyLossDistribution of dp_accounting, with losses at multiples of `interval`.
        interval: Its discretisation.
        count: At least 1.

    Raises:
        WorkerUnavailable: dp_accounting computes something else: it is another version than this one is made for.
    """
    epsilons = interval * np.arange(count, dtype=np.float64)
    deltas = np.maximum(*(_deltas(pmf, epsilons) for pmf in (distribution._pmf_remove, distribution._pmf_add)))
    for place in np.unique(np.linspace(0, count - 1, _COMPARED).astype(int)):
        difference = abs(float(distribution.get_delta_for_epsilon(float(epsilons[place]))) - deltas[place])
        if not difference <= _TOLERANCE:
            raise WorkerUnavailable("This version of dp_accounting is not supported: install the one that is pinned.")
    return np.asarray(deltas)


def _deltas(pmf: Any, epsilons: Floats) -> Floats:
    """inf + Σ over losses above ε of p·(1 − e^(ε − loss)), both sums taken from the largest loss down."""
    dense = pmf.to_dense_pmf()
    first, masses = dense._lower_loss, dense._probs
    losses = (first + np.arange(len(masses))) * dense._discretization
    above = len(masses) - np.clip(np.arange(len(epsilons)) + 1 - first, 0, len(masses))
    upper = np.concatenate([[dense._infinity_mass], masses[::-1]]).cumsum()
    # Only losses above 0 are asked for; e^(-loss) of the others could overflow.
    lower = np.concatenate([[0.0], (masses * np.exp(-np.maximum(losses, 0.0)))[::-1]]).cumsum()
    return np.asarray(upper[above] - np.exp(epsilons) * lower[above])
