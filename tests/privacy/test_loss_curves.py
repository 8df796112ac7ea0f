"""Curves by numpy beside dp_accounting's own walk over the losses."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_another_dp_accounting_is_refused(monkeypatch):
    losses = poisson_sampled_losses(2.0, 0.01, 10, NeighboringRelation.ZERO_OUT)
    public = type(losses).get_delta_for_epsilon
    monkeypatch.setattr(type(losses), "get_delta_for_epsilon", lambda self, epsilon: public(self, epsilon) + 1e-9)
    with pytest.raises(WorkerUnavailable, match="not supported"):
        deltas_at_multiples(losses, LOSS_INTERVAL, 1000)
