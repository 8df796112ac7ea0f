"""Opacus as a second opinion on gradients and on ε; nothing of it is in the product."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from datalens_service.data.dataset import Schema
from datalens_service.methods import DpSgd
from datalens_service.models.classifiers.architectures import ARCHITECTURES, build_network
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.privacy.accounting import epsilon_of_charge

SCHEMA = Schema(channels=1, height=28, width=28, class_names=("a", "b", "c"), num_units=100)
LARGE = SCHEMA.model_copy(update={"num_units": 60_000})


@pytest.mark.filterwarnings("ignore")
def test_epsilon_of_sampled_gradients_is_that_of_opacus() -> None:
    """Its PRV accountant shares no code with dp_accounting; its neighbours differ by one record more or less."""
    from opacus.accountants import PRVAccountant

    method = DpSgd(architecture="linear", sampling="poisson", batch=512, steps=150, noise_multiplier=0.9)
    (release,) = method.plan_within(LARGE, 2.0, 1e-5).releases
    block = release.mechanism.block()
    accountant = PRVAccountant()
    accountant.history = [(release.mechanism.noise_multiplier(), block.probability, block.draws)]
    theirs = accountant.get_epsilon(1e-5, eps_error=2e-3)
    assert block.epsilon_alone(release.mechanism.noise_multiplier(), 1e-5) == pytest.approx(theirs, rel=0.01)
    assert theirs * 0.99 <= epsilon_of_charge(block.charge(), 1e-5) <= 1.15 * theirs


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_records_are_those_of_opacus(architecture: str) -> None:
    from opacus import GradSampleModule

    rng = torch.Generator().manual_seed(1)
    images, labels = torch.rand(40, 1, 28, 28, generator=rng), torch.randint(3, (40,), generator=rng)
    network = build_network({"architecture": architecture}, SCHEMA)
    made = PerRecordGradients(network, lambda logits, _image, label: functional.cross_entropy(logits, label), 16)
    rows = torch.cat(list(made.chunks([images, labels])))
    hooked = GradSampleModule(build_network({"architecture": architecture}, SCHEMA).train(), loss_reduction="sum")
    functional.cross_entropy(hooked(images), labels, reduction="sum").backward()
    theirs = torch.cat([weight.grad_sample.flatten(1) for weight in hooked.parameters()], dim=1)
    scale = float(theirs.abs().max())
    np.testing.assert_allclose(rows.numpy(), theirs.numpy(), atol=1e-5 * scale)
