"""Detectors on individual ε: what a unit is shown to have lost, and the histogram that speaks about all units."""

import math
import tempfile
from pathlib import Path

import dp_accounting
import numpy as np
from dp_accounting.rdp import RdpAccountant

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms import IndividualHistogram
from datalens_service.mechanisms.individual_histogram import IndividualEpsilons
from datalens_service.mechanisms.private_records import Rows
from datalens_service.mechanisms.unit_records import as_tensors
from datalens_service.methods import DpSgd
from datalens_service.methods.descent.individual_norms import squared_norms
from datalens_service.methods.descent.iterates import read_iterates
from datalens_service.methods.script import Extras
from datalens_service.privacy import individual
from datalens_service.privacy.accounting import cost_ledger_units, epsilon_of_ledger_units, limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.privacy.sampled import poisson_sampled_epsilon
from datalens_service.subprocesses.individual_epsilon import ReleasedDescent
from tests.stepped_runs import SteppedRun

from .alarm import expect
from .cases import REPLACE_ONE, ZERO_OUT, distances_squared

_RADIUS, _STDDEV, _UNITS, _WORST = 65_617, 400_000, 30, 2.0


def steps_cost_no_less_than_was_contributed(rng: np.random.Generator) -> None:
    """A norm is rounded up to its level, and a level is priced by its largest norm."""
    accountant = individual.FullBatchAccountant(_RADIUS, _STDDEV)
    squares = rng.integers(1, _RADIUS**2, 200, endpoint=True)
    for square, level in zip(squares.tolist(), individual.norm_levels(squares, _RADIUS).tolist(), strict=True):
        expect(
            accountant.ledger_units({level: 1}) >= cost_ledger_units(square, _STDDEV),
            "a step costs what was contributed",
        )


def units_that_are_always_clipped_have_the_epsilon_of_the_job(_rng: np.random.Generator) -> None:
    """No step of such a unit is left out."""
    levels = individual.norm_levels(np.full((40, 1), _RADIUS**2), _RADIUS)
    ledger_units = individual.FullBatchAccountant(_RADIUS, _STDDEV).ledger_units(individual.level_counts(levels[:, 0]))
    expect(
        ledger_units == 40 * cost_ledger_units(_RADIUS**2, _STDDEV),
        "a unit that is always clipped loses what the job costs",
    )
    shown = individual.SampledAccountant(1 / 15, 2.0, math.inf, levels=1).epsilon({1: 40}, _DELTA)
    alone, expected = poisson_sampled_epsilon(2.0, 1 / 15, 40, _DELTA, ZERO_OUT), _epsilon_of_orders(1 / 15, 2.0, 40)
    expect(alone <= shown <= 1.3 * alone, "in sampled batches it loses no less than the run costs alone")
    expect(math.isclose(shown, expected, rel_tol=1e-9), "and its divergences are those of their orders")


def _epsilon_of_orders(probability: float, multiplier: float, steps: int) -> float:
    """By an accountant of dp_accounting that does both, divergences and their conversion."""
    accountant = RdpAccountant(individual._ORDERS, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    noise = dp_accounting.GaussianDpEvent(multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(probability, noise), steps)
    return float(accountant.get_epsilon(_DELTA))


def histograms_move_with_one_unit_alone(rng: np.random.Generator) -> None:
    """Δ² of emptying and of replacing the unit with the largest ε, which decides no bin of the others."""
    mechanism = IndividualHistogram(num_units=_UNITS, largest_epsilon=_WORST, delta=1e-5, noise_stddev=100)
    epsilons = rng.uniform(0.1, 0.8, _UNITS)
    epsilons[0] = 1.9
    data = IndividualEpsilons(epsilons, np.arange(_UNITS))
    emptied = IndividualEpsilons(epsilons[1:], np.arange(1, _UNITS))
    replaced = data._replace(epsilons=np.append(0.05, epsilons[1:]))
    for neighbor, relation in ((emptied, ZERO_OUT), (replaced, REPLACE_ONE)):
        distance, _ = distances_squared(mechanism, data, neighbor)
        expect(distance <= mechanism.sensitivity_squared(relation), f"histograms move by Δ at most: {relation}")


def histograms_are_charged(_rng: np.random.Generator) -> None:
    """The price of a histogram is on the account when it is handed out."""
    mechanism = IndividualHistogram(num_units=_UNITS, largest_epsilon=_WORST, delta=1e-5, noise_stddev=100)
    account = MemoryAccount(10 * mechanism.cost())
    data = IndividualEpsilons(np.full(_UNITS, 0.5), np.arange(_UNITS))
    mechanism.release(lambda: data, step=0, account=account, noise=NoiseSource())
    expect(account.charged_units == mechanism.cost(), "a histogram of individual epsilon is charged")


_EPSILON, _DELTA, _SIDE = 8.0, 1e-4, 8
_METHOD = DpSgd(
    architecture="linear", steps=3, clip_norm=20.0, learning_rate=0.01, accounting="per_instance", histogram_noise=100
)


def what_a_job_hands_out_with_its_iterates_is_released(rng: np.random.Generator) -> None:
    """A run on other records that meets the same noisy sums hands out the same file and figures.

    The file begins with the public first weights, so step t has the weights at which its gradients were taken.
    """
    account = MemoryAccount(limit_units(_EPSILON, _DELTA))
    first, second = (_trained(_records(rng), account) for _ in range(2))
    initial = _run(_records(rng)).local("descent").iterate()
    with tempfile.TemporaryDirectory(prefix="gate") as folder:
        one, two = (_written(extras, Path(folder) / str(n)) for n, extras in enumerate((first, second)))
        values, _ = read_iterates(one)
        expect(np.array_equal(values[0], initial), "iterates are those before each step")
        expect(one.read_bytes() == two.read_bytes(), "a file of iterates holds released numbers alone")
    expect(first.individual == second.individual, "figures of individual epsilon follow from the noisy histogram")


def a_record_that_is_sent_costs_no_less_than_it_contributed(rng: np.random.Generator) -> None:
    """The answer on one record covers the norms that it has among all records, and no step is left out."""
    dataset = _records(rng)
    training_run, account = _run(dataset), MemoryAccount(limit_units(_EPSILON, _DELTA))
    for step in range(training_run.begin(account).plan.steps):
        training_run.step(step, account)
    with tempfile.TemporaryDirectory(prefix="gate") as folder:
        path = _written(training_run.extras, Path(folder) / "iterates")
        values, _ = read_iterates(path)
        train, descent = dataset.train, training_run.local("descent")
        rows = as_tensors(Rows(train.images, train.labels, train.unit_ids), "cpu")
        norms = squared_norms(rows, descent.gradients, descent.mechanism, values)
        for record in range(3):
            paid = sum(cost_ledger_units(int(norm), descent.mechanism.noise_stddev) for norm in norms[:, record])
            sent = dataset.train.images[record : record + 1]
            answer = ReleasedDescent(path).realise_epsilon(sent, int(dataset.train.labels[record]))
            expect(answer.epsilon >= epsilon_of_ledger_units(paid, _DELTA), "a record costs what it contributed")


def _records(rng: np.random.Generator) -> Dataset:
    schema = Schema(channels=1, height=_SIDE, width=_SIDE, class_names=("a", "b"), num_units=_UNITS)
    images = rng.integers(0, 256, (_UNITS, _SIDE, _SIDE, 1)).astype(np.uint8)
    return Dataset(schema, Split(images, rng.integers(2, size=_UNITS)), None, b"k" * 32)


def _run(dataset: Dataset) -> SteppedRun:
    plan = _METHOD.plan_within(dataset.schema, _EPSILON, _DELTA)
    return SteppedRun(_METHOD, plan, dataset, price=(_EPSILON, _DELTA))


def _trained(dataset: Dataset, account: MemoryAccount) -> Extras:
    training_run = _run(dataset)
    for step in range(training_run.begin(account).plan.steps):
        training_run.step(step, account)
    return training_run.extras


def _written(extras: Extras, path: Path) -> Path:
    extras.files[0].write(path)
    return path
