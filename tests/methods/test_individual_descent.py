"""A descent that keeps its iterates: what it keeps, what it charges, and that a killed run loses none."""

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from datalens_service.base.errors import InfeasiblePlan, InvalidSpec
from datalens_service.mechanisms import IndividualHistogram
from datalens_service.methods import DpSgd, Plan
from datalens_service.methods.descent.individual_norms import build_accountant
from datalens_service.methods.descent.iterates import read_iterates
from datalens_service.methods.descent.unit_gradients import keep_energy
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.individual import norm_levels, realised_epsilons
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.spec import TrainingSpec
from datalens_service.training import run
from tests.stepped_runs import SteppedRun

from . import builders
from .builders import advance
from .test_individual_norms import COUNT, DELTA, norms_of, records

EPSILON, STEPS = 8.0, 60
FULL = DpSgd(architecture="linear", steps=6, accounting="per_instance", histogram_noise=100)
SAMPLED = DpSgd(
    architecture="linear", steps=STEPS, sampling="poisson", batch=20, accounting="per_instance", histogram_noise=100,
    noise_multiplier=6.0,
)  # fmt: skip


def plan_of(method: DpSgd) -> Plan:
    return method.plan_within(records().schema, EPSILON, DELTA)


def start(method: DpSgd) -> SteppedRun:
    return builders.start(method, records(), plan_of(method), price=(EPSILON, DELTA))


def account() -> MemoryAccount:
    return MemoryAccount(limit_units(EPSILON, DELTA), (EPSILON, DELTA))


def kept(training_run: SteppedRun, folder: Path) -> tuple[np.ndarray, dict[str, object]]:
    (file,) = training_run.extras.files
    file.write(folder / file.name)
    return read_iterates(folder / file.name)


@pytest.mark.parametrize("method", [FULL, SAMPLED], ids=["full batch", "sampled"])
def test_the_histogram_is_the_last_release_and_within_the_epsilon_of_the_job(method: DpSgd) -> None:
    spec = TrainingSpec(method=method, epsilon=EPSILON, delta=DELTA)
    price = spec.price(records().schema)
    assert price.steps == method.steps + 1
    assert price.epsilon_at_plan <= EPSILON
    assert price.kept_bytes == method.steps * price.releases[0]["dimensions"] * 4
    histogram = plan_of(method).releases[-1].mechanism
    assert isinstance(histogram, IndividualHistogram)
    assert price.ledger_units - plan_of(method.model_copy(update={"histogram_noise": None})).cost() <= histogram.cost()
    books = account()
    result = run(spec, records(), account=books)
    assert books.charges[-1] == (method.steps, "individual.histogram", histogram.cost())
    assert books.charged_units == price.ledger_units
    assert result.extras.individual is not None
    assert len(result.extras.individual.noisy_counts) == histogram.bins


@pytest.mark.parametrize("method", [FULL, SAMPLED], ids=["full batch", "sampled"])
@pytest.mark.parametrize("killed_before", [1, 3, 49, 50, 51, 59])
def test_a_resumed_run_keeps_the_iterates_of_the_first_one(method: DpSgd, killed_before: int, tmp_path: Path) -> None:
    books, first, resumed = account(), start(method), start(method)
    advance(first, books, min(killed_before, method.steps))
    advance(resumed, books, method.steps)
    whole = start(method)
    advance(whole, books, method.steps)
    (values, _), (again, _) = kept(resumed, tmp_path), kept(whole, tmp_path)
    assert values.shape == (method.steps, resumed.local("descent").mechanism.dimensions)
    np.testing.assert_array_equal(values, again)
    np.testing.assert_array_equal(values[0], start(method).local("descent").iterate())
    assert len(np.unique(values, axis=0)) == method.steps


def test_a_histogram_that_was_drawn_is_replayed_and_not_charged_again() -> None:
    books, first, again = account(), start(FULL), start(FULL)
    advance(first, books, FULL.steps + 1)
    charges = list(books.charges)
    advance(again, books, FULL.steps + 1)
    assert books.charges == charges
    assert first.extras.individual == again.extras.individual


def test_the_histogram_counts_each_unit_at_its_realised_epsilon() -> None:
    method = FULL.model_copy(update={"clip_norm": 3.0})
    training_run = start(method)
    advance(training_run, account(), method.steps)
    iterates, seen = training_run.local("kept").stacked(), []
    exact_sum = IndividualHistogram.exact_sum
    with mock.patch.object(
        IndividualHistogram, "exact_sum", lambda self, given: (seen.append(given), exact_sum(self, given))[1]
    ):
        training_run.step(method.steps, account(), NoiseSource())
    (contributions,) = seen
    levels = norm_levels(norms_of(method, records(), iterates), training_run.local("descent").mechanism.radius)
    histogram = plan_of(method).releases[-1].mechanism
    exact = realised_epsilons(
        levels, build_accountant(training_run.local("descent").mechanism, EPSILON, histogram.cost()), DELTA
    )
    assert contributions.units.tolist() == list(range(COUNT))
    assert (contributions.epsilons >= exact * (1 - 1e-12)).all()
    assert (contributions.epsilons <= exact * 1.01).all()
    assert len(set(exact.tolist())) > 10


def test_what_follows_the_histogram_is_the_classifier_of_before() -> None:
    training_run, books = start(FULL), account()
    advance(training_run, books, FULL.steps)
    before, iterate = training_run.result().tensors, training_run.local("descent").iterate()
    training_run.step(FULL.steps, books, NoiseSource())
    np.testing.assert_array_equal(training_run.local("descent").iterate(), iterate)
    for name, value in training_run.result().tensors.items():
        np.testing.assert_array_equal(value, before[name])


def test_sampled_histograms_look_at_every_unit_twice_per_pass() -> None:
    assert plan_of(FULL).releases[-1].mechanism.every == 1
    assert plan_of(SAMPLED.model_copy(update={"batch": 6})).releases[-1].mechanism.every == COUNT // 12
    assert plan_of(FULL.model_copy(update={"histogram_every": 4})).releases[-1].mechanism.every == 4


def test_iterates_that_are_too_large_are_refused_before_a_job() -> None:
    large = DpSgd(architecture="linear", steps=10_000, accounting="per_instance")
    with pytest.raises(InvalidSpec, match="at most 256 MiB"):
        large.model_copy(update={"architecture": "mlp"}).plan_within(records().schema, EPSILON, DELTA)
    assert large.plan_within(records().schema, EPSILON, DELTA).steps == 10_000
    uniform = large.model_copy(update={"architecture": "mlp", "accounting": "uniform"})
    assert uniform.kept_bytes(uniform.plan_within(records().schema, EPSILON, DELTA)) == 0


def test_a_histogram_that_takes_all_of_epsilon_is_refused() -> None:
    for method in (FULL, SAMPLED, SAMPLED.model_copy(update={"noise_multiplier": None})):
        with pytest.raises(InfeasiblePlan):
            method.plan_within(records().schema, 0.001, DELTA)


def test_a_histogram_that_drowns_in_noise_is_said_before() -> None:
    assert any("histogram" in warning for warning in FULL.warnings(plan_of(FULL), records().schema))


def test_parts_of_individual_accounting_need_each_other() -> None:
    with pytest.raises(ValidationError, match="per_instance"):
        DpSgd(histogram_noise=100)
    with pytest.raises(ValidationError, match="histogram_noise"):
        DpSgd(accounting="per_instance", histogram_every=3)
    with pytest.raises(ValidationError, match="whole gradients"):
        DpSgd(accounting="per_instance", compression="topk", keep=0.5)


def test_a_last_bit_decides_what_a_compression_keeps() -> None:
    """Why no margin on a norm covers compressed gradients: 10^-7 of one coordinate moves a third of the norm."""
    row, other = torch.tensor([[1.0, 1.0, 0.5]]), torch.tensor([[1.0, 1.0 - 2**-24, 0.5]])
    norms = [float(keep_energy(each, 0.6).norm()) for each in (row, other)]
    assert abs(norms[0] - norms[1]) > 0.3


def test_uniform_accounting_releases_nothing_beside_the_classifier() -> None:
    result = run(TrainingSpec(method=DpSgd(architecture="linear", steps=3), epsilon=8.0), records(), account=account())
    assert (result.extras.files, result.extras.individual) == ((), None)
