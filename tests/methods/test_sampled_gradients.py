"""DP-SGD on Poisson-sampled batches: what is planned, charged, computed and divided by, and how a run goes on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional

from datalens_service.base.errors import BudgetExceeded, InfeasiblePlan, InvalidSpec, StateConflict
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.mechanisms import GradientChunk
from datalens_service.methods import DpSgd
from datalens_service.methods.descent.sampled_gradients import smallest_stddev
from datalens_service.methods.descent.unit_gradients import unit_gradients
from datalens_service.models.classifiers.architectures import ARCHITECTURES, build_network
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.privacy.accounting import delta_beside, epsilon_of_charge, limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import Booleans, NoiseSource
from datalens_service.spec import TrainingSpec
from datalens_service.training import run
from tests.stepped_runs import SteppedRun

from . import builders
from .builders import advance, share_right

EPSILON, DELTA = 2.0, 1e-4


def stripes(records_per_unit: int = 1) -> Dataset:
    """Units have names that are no positions."""
    data = builders.stripes(records_per_unit=records_per_unit)
    return replace(data, train=replace(data.train, units=data.train.unit_ids * 10**12 + 5))


def sampled(**changes: Any) -> DpSgd:
    return DpSgd.model_validate({"architecture": "linear", "sampling": "poisson", "batch": 40, "steps": 20} | changes)


def job(method: DpSgd) -> TrainingSpec:
    return TrainingSpec(method=method, epsilon=EPSILON, delta=DELTA)


def start(method: DpSgd, data: Dataset) -> SteppedRun:
    return builders.start(method, data, method.plan_within(data.schema, EPSILON, DELTA))


def contributions(training_run: SteppedRun, coins: Booleans | None = None) -> list[GradientChunk]:
    descent, units = training_run.local("descent"), training_run.local("units")
    return list(training_run.vault(units).answer(unit_gradients, descent.gradients, coins))


def account() -> MemoryAccount:
    return MemoryAccount(limit_units(EPSILON, DELTA), (EPSILON, DELTA))


@pytest.mark.parametrize("records", [1, 4])
def test_it_learns_and_the_block_is_charged_once(records: int) -> None:
    dataset, books = stripes(records_per_unit=records), account()
    result = run(job(sampled()), dataset, account=books)
    (release,) = result.plan.releases
    block = release.mechanism.block()
    assert block is not None
    assert books.charges == [
        (step, "network.sampled_gradient", block.ledger_units_zero_out * (step == 0)) for step in range(20)
    ]
    assert (books.charged_units, books.slack) == result.plan.charge()
    assert share_right(result.model) > 0.9


@pytest.mark.parametrize(("batch", "epsilon"), [(40, 2.0), (8, 1.0), (400, 1.0)])
def test_the_plan_is_the_least_noise_that_fits(batch: int, epsilon: float) -> None:
    schema = stripes().schema
    plan = sampled(batch=batch).plan_within(schema, epsilon, DELTA)
    (release,) = plan.releases
    assert epsilon_of_charge(plan.charge(), DELTA) <= epsilon
    less = release.mechanism.model_copy(update={"noise_stddev": int(release.mechanism.noise_stddev * 0.9998)})
    block = release.mechanism.block()
    assert block is not None
    fixed = block.model_dump(exclude={"ledger_units_zero_out", "ledger_units_replace_one"})
    cheaper = type(block).priced(less.noise_multiplier(), **fixed)
    assert cheaper.charge().ledger_units > limit_units(epsilon, delta_beside(block.slack, DELTA))


@pytest.mark.parametrize(("steps", "spare"), [(1, 2), (20, 2), (201, 3), (1172, 12)])
def test_a_plan_has_spare_steps(steps: int, spare: int) -> None:
    (release,) = sampled(steps=steps, noise_multiplier=9.0).plan_within(stripes().schema, EPSILON, DELTA).releases
    block = release.mechanism.block()
    assert block is not None
    assert (release.count, block.draws) == (steps, steps + spare)


def test_what_does_not_fit_is_refused() -> None:
    schema = stripes().schema
    with pytest.raises(InfeasiblePlan, match="noise_multiplier"):
        sampled(noise_multiplier=0.6).plan_within(schema, 1.0, DELTA)
    with pytest.raises(InfeasiblePlan, match="sampler can draw"):
        sampled(noise_multiplier=1e5).plan_within(schema, 1.0, DELTA)
    with pytest.raises(InvalidSpec, match="batch"):
        sampled(batch=schema.num_units + 1).plan_within(schema, 1.0, DELTA)
    with pytest.raises(ValidationError, match="choose poisson"):
        DpSgd(batch=3)


def test_the_search_for_noise_ends_wherever_it_begins() -> None:
    for guess in (1, 100, 12_345, 2**26):
        prices: list[int] = []

        def price(stddev: int, asked: list[int] = prices) -> int | None:
            asked.append(stddev)
            return None if stddev < 200 else 10**18 // stddev**2

        found = smallest_stddev(price, 10**9, guess)
        assert 31_623 <= found <= 31_628
        assert len(prices) < 25
    with pytest.raises(InfeasiblePlan):
        smallest_stddev(lambda _stddev: 10, 1, 1000)


def test_prices_say_how_batches_are_drawn() -> None:
    summary = job(sampled()).price(stripes().schema)
    assert summary.sampling is not None
    assert summary.sampling.sampling_probability == pytest.approx(0.1, rel=1e-12)
    assert summary.sampling.sampling_probability <= 0.1
    assert summary.sampling.expected_passes == pytest.approx(2.0)
    assert (summary.sampling.spare_steps, summary.sampling.slack) == (2, pytest.approx(5e-6))
    assert summary.epsilon_at_plan == summary.sampling.epsilon_by_ledger <= EPSILON
    assert summary.sampling.epsilon_alone <= summary.sampling.epsilon_by_ledger
    assert job(DpSgd(architecture="linear")).price(stripes().schema).sampling is None


def test_a_large_surplus_is_said_before() -> None:
    schema = stripes().schema.model_copy(update={"num_units": 60_000})
    few, many = (
        TrainingSpec(method=sampled(batch=512, steps=steps, noise_multiplier=1.6), epsilon=2.0).price(schema)
        for steps in (8, 1000)
    )
    assert any("more ε than the run costs alone" in warning for warning in few.warnings)
    assert not any("costs alone" in warning for warning in many.warnings)


def test_a_run_that_costs_no_epsilon_beside_delta_has_a_price() -> None:
    summary = job(sampled(steps=1, noise_multiplier=1000.0)).price(stripes().schema)
    assert summary.sampling is not None
    assert summary.sampling.epsilon_alone == 0
    assert not any("costs alone" in warning for warning in summary.warnings)


class Coins(NoiseSource):  # type: ignore[misc]
    """Coins that fall as they are told; noise of zero."""

    def __init__(self, fall: Booleans) -> None:
        self._fall = fall

    def coins(self, count: int, numerator: int) -> Booleans:
        assert len(self._fall) == count
        return self._fall

    def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)


@pytest.mark.parametrize("records", [1, 4])
def test_gradients_are_computed_for_the_units_in_the_batch_alone(records: int) -> None:
    dataset = stripes(records_per_unit=records)
    training_run = start(sampled(), dataset)
    coins = np.random.default_rng(3).random(dataset.schema.num_units) < 0.1
    chunks = contributions(training_run, coins)
    names = np.unique(dataset.train.unit_ids)
    assert torch.cat([chunk.units for chunk in chunks]).tolist() == names[coins].tolist()
    everyone = torch.cat([chunk.gradients for chunk in contributions(training_run)])
    torch.testing.assert_close(torch.cat([chunk.gradients for chunk in chunks]), everyone[coins], rtol=0, atol=0)


def test_sums_are_divided_by_the_expected_batch_however_many_came() -> None:
    """What is applied is linear in the number of units that came."""
    dataset = stripes()
    steps = []
    for count in (0, 1, 7, 60):
        training_run = start(sampled(optimizer="sgd", momentum=0.0), dataset)
        before = torch.cat([weight.detach().flatten().clone() for weight in training_run.local("descent")._weights()])
        coins = np.arange(dataset.schema.num_units) < count
        training_run.step(0, account(), Coins(coins))
        after = torch.cat([weight.detach().flatten() for weight in training_run.local("descent")._weights()])
        rows = [chunk.gradients for chunk in contributions(start(sampled(), dataset), coins)]
        clipped = [row * (1 / row.norm(dim=1, keepdim=True).clamp(min=1)) for row in rows]
        expected = torch.cat(clipped).sum(0) / 40 if clipped else torch.zeros_like(before)
        torch.testing.assert_close((before - after) / 0.5, expected, atol=1e-4, rtol=1e-3)
        steps.append(after)
    assert not torch.equal(steps[1], steps[2])


def test_an_empty_batch_gets_its_noise() -> None:
    data = builders.dataset(np.random.default_rng(0).integers(0, 9, (3, 12, 12, 1)), np.arange(3) % 2)
    training_run, books = start(sampled(batch=1, steps=4, noise_multiplier=9.0), data), account()
    (release,) = training_run.begin(books).plan.releases
    rare = release.mechanism.sampling.model_copy(update={"numerator": 2**20})
    mechanism = release.mechanism.model_copy(update={"sampling": rare})
    training = training_run.begin()
    training._ask = training.look()._replace(mechanism=mechanism)
    training.step(NoiseSource())
    stored = books.replay(0)
    assert stored is not None
    assert np.abs(stored).max() > mechanism.noise_stddev / 10


@pytest.mark.parametrize("changes", [{}, {"architecture": "mlp", "optimizer": "adam", "learning_rate": 0.02}])
def test_a_run_goes_on_where_it_was_and_keeps_few_sums(changes: dict[str, Any]) -> None:
    dataset, method, books = stripes(), sampled(steps=120, noise_multiplier=9.0, **changes), account()
    whole = start(method, dataset)
    advance(whole, books, 111)
    assert books.latest()[0] == 100
    assert sorted(books._stored) == list(range(100, 111))
    resumed = start(method, dataset)
    advance(resumed, books, 111)
    assert len(books.charges) == 111
    for name, value in whole.result().tensors.items():
        np.testing.assert_array_equal(resumed.result().tensors[name], value)
    for training_run in (whole, resumed):
        training_run.step(111, books, Coins(np.zeros(dataset.schema.num_units, dtype=bool)))
    for first, second in zip(*(one.local("descent")._weights() for one in (whole, resumed)), strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_no_more_is_drawn_than_was_paid_for() -> None:
    """Steps whose sums are lost use up the spare ones; then the run ends earlier, with what it has."""
    dataset, books, method = stripes(), account(), sampled(steps=3, noise_multiplier=9.0)
    result = run(job(method), dataset, account=books)
    block = result.plan.releases[0].mechanism.block()
    assert block is not None
    books._stored.clear()
    resumed = start(method, dataset)
    advance(resumed, books, 2)
    with pytest.raises(BudgetExceeded):
        resumed.step(2, books, NoiseSource())
    assert len(books.charges) == block.draws == 5
    assert books.charged_units == block.ledger_units_zero_out


def test_accounts_in_memory_hold_blocks_and_slack() -> None:
    (release,) = sampled().plan_within(stripes().schema, EPSILON, DELTA).releases
    block = release.mechanism.block()
    assert block is not None
    other = block.model_copy(update={"draws": 99})
    books = account()
    books.charge_draw(0, "sampled", block)
    with pytest.raises(StateConflict):
        books.charge_draw(1, "sampled", other)
    with pytest.raises(BudgetExceeded):
        books.charge(1, "more", books.limit_units - block.ledger_units_zero_out)
    alone = MemoryAccount(books.limit_units)
    alone.charge_draw(0, "sampled", block)
    alone.charge_draw(1, "sampled", block)
    with pytest.raises(BudgetExceeded):
        alone.charge(2, "more", 1)
    shared = MemoryAccount(books.limit_units)
    shared.charge(0, "more", 1)
    with pytest.raises(BudgetExceeded):
        shared.charge_draw(1, "sampled", block.model_copy(update={"ledger_units_zero_out": 1}))


@pytest.mark.parametrize("records", [1, 4])
def test_every_unit_has_a_coin_of_its_own(records: int) -> None:
    dataset = stripes(records_per_unit=records)
    training_run = start(sampled(), dataset)
    seen: list[int] = []
    for unit in range(dataset.schema.num_units):
        (chunk,) = contributions(training_run, np.arange(dataset.schema.num_units) == unit)
        units = chunk.units.tolist()
        assert len(units) == 1
        seen += units
    assert sorted(seen) == sorted(set(dataset.train.unit_ids.tolist()))


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
