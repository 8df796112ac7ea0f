"""Individual ε of a descent: recomputed from released iterates, for each unit alone."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Split
from datalens_service.mechanisms.private_records import Rows
from datalens_service.mechanisms.unit_records import as_tensors
from datalens_service.methods import DpSgd
from datalens_service.methods.descent.individual_norms import squared_norms
from datalens_service.methods.descent.iterates import Iterates
from datalens_service.methods.descent.unit_gradients import image_gradients
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.privacy.accounting import epsilon_of_ledger_units, limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.individual import FullBatchAccountant, norm_levels, realised_epsilons, with_margin
from datalens_service.privacy.randomness import NoiseSource

from .builders import dataset, start

COUNT, SIDE, STEPS, DELTA = 60, 8, 6, 1e-4
UNITS = limit_units(8.0, DELTA)


def records(chosen: slice = slice(None)) -> Dataset:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (COUNT, SIDE, SIDE, 1)).astype(np.uint8)
    labels = rng.integers(2, size=COUNT)
    return dataset(images[chosen], labels[chosen], units=np.arange(COUNT)[chosen])


def norms_of(method: DpSgd, data: Dataset, iterates: Iterable[Iterates], at_once: int | None = None) -> np.ndarray:
    train, mechanism = data.train, method.plan_within(data.schema, 8.0, DELTA).releases[0].mechanism
    rows = as_tensors(Rows(train.images, train.labels, train.unit_ids), "cpu")
    network = build_network({"architecture": method.architecture}, data.schema)
    return squared_norms(rows, image_gradients(network, data.schema, records_at_once=at_once), mechanism, iterates)


def trained(method: DpSgd) -> list[Iterates]:
    descent, account, iterates = start(method, records(), UNITS), MemoryAccount(UNITS), []
    for step in range(descent.begin(account).plan.steps):
        iterates.append(descent.local("descent").iterate())
        descent.step(step, account, NoiseSource())
    return iterates


def individual_epsilons(method: DpSgd, norms: np.ndarray) -> np.ndarray:
    mechanism = start(method, records(), UNITS).local("descent").mechanism
    accountant = FullBatchAccountant(mechanism.radius, mechanism.noise_stddev)
    return realised_epsilons(norm_levels(norms, mechanism.radius), accountant, DELTA)


@pytest.mark.parametrize("clip_norm", [1e-4, 1000.0])
def test_units_have_the_epsilon_of_the_job_if_they_are_always_clipped_and_less_if_never(clip_norm: float):
    method = DpSgd(architecture="linear", steps=STEPS, clip_norm=clip_norm, learning_rate=1e-3)
    epsilons = individual_epsilons(method, norms_of(method, records(), trained(method)))
    job = method.plan(records().schema, UNITS).cost()
    if clip_norm < 1:
        assert set(epsilons.tolist()) == {epsilon_of_ledger_units(job, DELTA)}
    else:
        assert (epsilons < epsilon_of_ledger_units(job, DELTA) / 10).all()


def test_a_unit_added_at_the_end_leaves_all_other_norms_as_they_were():
    method = DpSgd(architecture="linear", steps=STEPS, clip_norm=3.0)
    iterates = trained(method)
    fewer, more = (norms_of(method, records(slice(count)), iterates) for count in (COUNT - 1, COUNT))
    np.testing.assert_array_equal(more[:, :-1], fewer)


def test_a_record_has_the_same_norms_in_other_company():
    method = DpSgd(architecture="mlp", steps=STEPS)
    iterates = trained(method)
    few = norms_of(method, records(slice(7, 9)), iterates)
    np.testing.assert_array_equal(few, norms_of(method, records(), iterates)[:, 7:9])


@pytest.mark.parametrize("architecture", ["small_cnn", "lenet", "lenet_relu", "mlp", "linear"])
def test_the_margin_of_a_record_alone_covers_its_norm_among_others(architecture: str):
    method = DpSgd(architecture=architecture, steps=1, clip_norm=50.0)
    images = np.random.default_rng(1).integers(0, 256, (5, 28, 28, 1)).astype(np.uint8)
    labels = np.arange(5) % 2
    whole = dataset(images, labels)

    def norms(chosen: slice, at_once: int | None) -> np.ndarray:
        # A schema of one unit alone would be refused.
        schema = whole.schema.model_copy(update={"num_units": len(labels[chosen])})
        part = replace(whole, schema=schema, train=Split(images[chosen], labels[chosen]))
        return norms_of(method, part, [start(method, part, UNITS).local("descent").iterate()], at_once)[0]

    among_others = norms(slice(None), None)
    radius = start(method, whole, UNITS).local("descent").mechanism.radius
    for record in range(5):
        alone = norms(slice(record, record + 1), 1)
        assert with_margin(alone, radius)[0] >= among_others[record] > 0
        # The margin is far from used up.
        assert abs(alone[0] / among_others[record] - 1) < 1e-4


def test_a_gradient_that_is_not_finite_has_the_largest_norm():
    """Added up it is 0, but among others, by other kernels, it may have been finite and clipped."""
    method = DpSgd(architecture="linear", steps=1)
    descent = start(method, records(), UNITS)
    norms = norms_of(method, records(), [np.full_like(descent.local("descent").iterate(), np.inf)])
    assert (norms == descent.local("descent").mechanism.radius ** 2).all()


def test_every_step_has_the_norms_of_its_own_weights():
    method = DpSgd(architecture="linear", steps=STEPS, clip_norm=1000.0)
    norms = norms_of(method, records(), trained(method))
    assert len(np.unique(norms, axis=0)) == STEPS
