"""Losses of a sampled Gaussian for dp_accounting, computed for a whole grid at once.

dp_accounting looks for the point of each loss by itself, 10^5 calls that take seconds for one price. The formulas here
are its own, by numpy, and are compared with it at some losses each time. `recomputation` uses dp_accounting alone.
"""

import math
from typing import Any, Final

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as distributions
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from datalens_service.base.arrays import Floats
from datalens_service.base.errors import WorkerUnavailable

_COMPARED: Final = 9
_TOLERANCE: Final = 1e-7
"""Tolerance of points, in σ/√q. There δ is flat: it changes by less than q times its square, over σ."""


class GaussianLosses(GaussianPrivacyLoss):  # type: ignore[misc]
    """Losses between N(0, σ²) and its mixture with N(1, σ²) of weight q (Zhu & Wang 2019)."""

    def get_delta_for_epsilon(self, epsilon: Any) -> Any:
        """Return δ of every ε: 0 or 1 − e^ε where the weight of the mixture bounds the loss, else that up to a point.

        Raises:
            WorkerUnavailable: dp_accounting finds other points; this code is made for another version of it.
        """
        if np.ndim(epsilon) == 0:
            return super().get_delta_for_epsilon(epsilon)
        epsilons: Floats = np.asarray(epsilon, dtype=np.float64)
        most = -math.log1p(-self.sampling_prob) if self.sampling_prob < 1 else math.inf
        bounds = {AdjacencyType.ADD: (-math.inf, most), AdjacencyType.REMOVE: (-most, math.inf)}
        low, high = bounds.get(self.adjacency_type, (-math.inf, math.inf))
        reached = (low < epsilons) & (epsilons < high)
        deltas: Floats = np.where(epsilons <= low, -np.expm1(np.minimum(epsilons, 0.0)), 0.0)
        points = self._points(epsilons[reached])
        self._compare(epsilons[reached], points)
        deltas[reached] = self.mu_upper_cdf(points) - np.exp(epsilons[reached] + self.mu_lower_log_cdf(points))
        return np.clip(deltas, 0.0, 1.0)

    def _compare(self, epsilons: Floats, points: Floats) -> None:
        """Compare inner points with dp_accounting's; the outermost losses lose digits in both, but carry no mass."""
        tolerance = _TOLERANCE * self._standard_deviation / math.sqrt(self.sampling_prob)
        for place in np.unique(np.linspace(0, len(points) - 1, _COMPARED + 2)[1:-1].astype(int)):
            theirs = self.inverse_privacy_loss(float(epsilons[place]))
            if not abs(points[place] - theirs) <= tolerance:
                raise WorkerUnavailable(
                    "This version of dp_accounting is not supported: install the one that is pinned."
                )

    def _points(self, epsilons: Floats) -> Floats:
        """Return the largest x with at least these losses."""
        variance = self._standard_deviation**2
        if self.adjacency_type == AdjacencyType.REPLACE:
            return np.asarray(variance * (self._inverse_sine(epsilons) - epsilons / 2))
        sign = 1 if self.adjacency_type == AdjacencyType.REMOVE else -1
        shifted = sign * epsilons - math.log(self.sampling_prob)
        # Points for the mean that is drawn for certain; −∞ where the mixture's weight bounds the loss.
        with np.errstate(divide="ignore"):
            alone = shifted + np.log1p(-np.exp(np.log(1 / self.sampling_prob - 1) - shifted))
        return np.asarray(-sign * (0.5 + alone * variance))

    def _inverse_sine(self, epsilons: Floats) -> Floats:
        """Return arsinh(−sinh(ε/2)·e^(1/2σ²)·(1 − q)/q), by logarithms that do not overflow."""
        half = np.abs(epsilons) / 2
        with np.errstate(divide="ignore"):
            weight = np.log(1 / self.sampling_prob - 1) + 0.5 / self._standard_deviation**2
            product = weight + half + np.log1p(-np.exp(-2 * half)) - math.log(2)
        return np.asarray(-np.sign(epsilons) * np.logaddexp(np.logaddexp(0.0, 2 * product) / 2, product))


def compose_gaussian_losses(
    noise_multiplier: float, sampling_probability: float, steps: int, interval: float, *, replaced: bool
) -> Any:
    """Compose the losses of all steps, at multiples of an interval: every δ(ε) is at least the true one.

    Args:
        noise_multiplier: σ over the norm of a contribution.
        replaced: True if a unit is replaced by another one, False if it is emptied.

    Returns:
        A PrivacyLossDistribution of dp_accounting.
    """

    def masses(adjacency: AdjacencyType) -> Any:
        losses = GaussianLosses(noise_multiplier, sampling_prob=sampling_probability, adjacency_type=adjacency)
        return distributions._create_pld_pmf_from_monotone_privacy_loss(losses, True, interval, use_connect_dots=True)

    if replaced:
        single = distributions.PrivacyLossDistribution(masses(AdjacencyType.REPLACE))
    else:
        single = distributions._pld_for_subsampled_mechanism(masses, sampling_probability)
    return single.self_compose(steps)
