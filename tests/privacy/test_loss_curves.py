"""Curves by numpy beside dp_accounting's own walk over the losses."""

import numpy as np
import pytest
from dp_accounting.pld.pld_pmf import DensePLDPmf, SparsePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from datalens_service.errors import WorkerUnavailable
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.loss_curves import deltas_at_multiples
from datalens_service.privacy.sampled import LOSS_INTERVAL, poisson_sampled_losses


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize(("noise", "probability", "steps"), [(1.6, 0.01, 200), (0.5, 0.05, 3), (20.0, 1.0, 5)])
def test_a_curve_is_that_of_dp_accounting(noise, probability, steps, relation):
    losses = poisson_sampled_losses(noise, probability, steps, relation)
    epsilons = LOSS_INTERVAL * np.arange(60_000)
    deltas = deltas_at_multiples(losses, LOSS_INTERVAL, len(epsilons))
    np.testing.assert_allclose(deltas, losses.get_delta_for_epsilon(epsilons), rtol=1e-9, atol=1e-13)


def masses(count: int, infinity_mass: float = 0.0) -> np.ndarray:
    drawn = np.random.default_rng(count).random(count)
    return drawn / drawn.sum() * (1 - infinity_mass)


def dense(first: int, count: int, infinity_mass: float = 0.0) -> DensePLDPmf:
    return DensePLDPmf(LOSS_INTERVAL, first, masses(count, infinity_mass), infinity_mass, True)


def sparse(first: int, count: int) -> SparsePLDPmf:
    return SparsePLDPmf(dict(enumerate(masses(count), first)), LOSS_INTERVAL, 0.0, True)


@pytest.mark.parametrize(
    ("remove", "add"),
    [
        (dense(-10, 300), dense(-10, 300, 0.3)),
        (dense(-10, 300, 0.3), dense(-10, 300)),
        (dense(-200, 300), dense(-10, 300)),
        (sparse(-10, 50), sparse(5, 50)),
        (dense(7, 300), dense(40, 20)),
        (dense(-400, 300), dense(-900, 300)),
        (dense(0, 1), None),
    ],
)
def test_either_order_and_infinite_losses_count(remove, add):
    losses = PrivacyLossDistribution(remove, add)
    epsilons = LOSS_INTERVAL * np.arange(500)
    deltas = deltas_at_multiples(losses, LOSS_INTERVAL, len(epsilons))
    np.testing.assert_allclose(deltas, losses.get_delta_for_epsilon(epsilons), rtol=1e-9, atol=1e-13)


def test_masses_that_are_not_numbers_are_refused():
    losses = PrivacyLossDistribution(dense(0, 300))
    losses._pmf_remove._probs[100] = np.nan
    with pytest.raises(WorkerUnavailable, match="not supported"):
        deltas_at_multiples(losses, LOSS_INTERVAL, 9001)


def test_another_dp_accounting_is_refused(monkeypatch):
    losses = poisson_sampled_losses(2.0, 0.01, 10, NeighboringRelation.ZERO_OUT)
    public = type(losses).get_delta_for_epsilon
    monkeypatch.setattr(type(losses), "get_delta_for_epsilon", lambda self, epsilon: public(self, epsilon) + 1e-9)
    with pytest.raises(WorkerUnavailable, match="not supported"):
        deltas_at_multiples(losses, LOSS_INTERVAL, 1000)
