"""DP-SGD with von Mises-Fisher noise: what is planned, charged and refused, and how a run goes on."""

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from datalens_service.base.errors import BudgetExceeded, InfeasiblePlan, InvalidSpec
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.mechanisms import VonMisesFisherSum
from datalens_service.methods import DpSgd
from datalens_service.privacy.accounting import NeighboringRelation, epsilon_of_ledger_units, limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.training import run
from store.books import claimed, images, journal_of, new_dataset, new_job, read_account, verified

from . import builders

COUNT, DELTA = 1000, 1e-5


def stripes(count: int = COUNT, **declared: Any) -> Dataset:
    return builders.stripes(count=count, side=8, **declared)


def directed(**changes: Any) -> DpSgd:
    plain = {"architecture": "linear", "noise": "von_mises_fisher", "sampling": "partition", "batch": 100}
    return DpSgd.model_validate(plain | {"steps": 20, "learning_rate": 2.0, "momentum": 0.5} | changes)


def job(method: DpSgd, epsilon: float = 20.0) -> TrainingSpec:
    return TrainingSpec(method=method, epsilon=epsilon, delta=DELTA)


def mechanism_of(method: DpSgd, epsilon: float, schema: Schema) -> VonMisesFisherSum:
    (release,) = method.plan_within(schema, epsilon, DELTA).releases
    assert isinstance(release.mechanism, VonMisesFisherSum)
    return release.mechanism


def test_it_learns_and_two_passes_are_charged_with_the_first_draw() -> None:
    dataset, spec = stripes(), job(directed())
    books = MemoryAccount(spec.limit_units(dataset.schema))
    result = run(spec, dataset, account=books)
    block = result.plan.releases[0].mechanism.block()
    assert block is not None
    assert books.charges == [
        (step, "network.noisy_directions", block.charge().ledger_units * (step == 0)) for step in range(20)
    ]
    assert books.slack == 0
    predicted = result.model.predict(dataset.train.images).argmax(axis=1)  # type: ignore[attr-defined]
    assert (predicted == dataset.train.labels).mean() > 0.9


@pytest.mark.parametrize(("steps", "passes"), [(10, 1), (11, 2), (20, 2), (300, 30)])
def test_the_largest_concentration_that_fits_is_planned(steps: int, passes: int) -> None:
    schema = stripes().schema
    mechanism = mechanism_of(directed(steps=steps), 2.0, schema)
    assert mechanism.partition.passes == passes
    spent = epsilon_of_ledger_units(mechanism.cost(), DELTA)
    assert 1.999 < spent <= 2.0
    mu = mechanism.kappa * math.sqrt(passes / (mechanism.dimensions - 3))
    assert mu**2 * 10**15 <= mechanism.cost() <= mu**2 * 10**15 * 1.001


@pytest.mark.parametrize(("passes", "kappa", "published"), [(30, 5.0, 0.809), (30, 0.5, 0.067), (1, 25.0, 0.731)])
def test_replacing_a_unit_costs_what_composed_privacy_losses_say(passes: int, kappa: float, published: float) -> None:
    """Figures of an independent composition of the one-dimensional law, for LeNet on 28 by 28 pixels."""
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
    method = directed(architecture="lenet", batch=600, steps=100 * passes, kappa=kappa)
    cost = mechanism_of(method, 10.0, schema).cost(NeighboringRelation.REPLACE_ONE)
    assert epsilon_of_ledger_units(cost, DELTA) == pytest.approx(published, rel=0.03)


def test_a_plan_says_what_directions_cost_without_delta() -> None:
    summary = job(directed(kappa=3.0)).summarize(job(directed(kappa=3.0)).plan(stripes().schema), stripes().schema)
    assert summary.directions is not None
    assert summary.directions.kappa == pytest.approx(3.0, rel=1e-4)
    assert (summary.directions.batches, summary.directions.passes) == (10, 2)
    assert summary.directions.pure_epsilon_replace_one == pytest.approx(12, rel=1e-4)
    assert 6 < summary.directions.pure_epsilon < 6.2
    assert summary.sampling is None


def test_a_plan_warns_when_noise_is_longer_than_the_signal() -> None:
    schema = stripes().schema
    weak, strong = (directed(architecture="mlp", kappa=kappa) for kappa in (1.0, 1000.0))
    (warning,) = weak.warnings(weak.plan_within(schema, 100.0, DELTA), schema)
    assert "times as long as the sum of directions" in warning
    assert strong.warnings(strong.plan(schema, 10**18), schema) == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sampling": "poisson"}, "belong together"),
        ({"sampling": "none", "batch": None}, "belong together"),
        ({"noise": "gaussian"}, "belong together"),
        ({"compression": "topk", "keep": 0.5}, "directions alone"),
        ({"clip_norm": 2.0}, "directions alone"),
        ({"noise_multiplier": 2.0}, "directions alone"),
        ({"accounting": "per_instance"}, "directions alone"),
    ],
)
def test_settings_that_do_not_go_with_directions_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        directed(**changes)


def test_kappa_belongs_to_directions() -> None:
    with pytest.raises(ValidationError, match="kappa belongs to noise von_mises_fisher"):
        DpSgd(kappa=1.0)


@pytest.mark.parametrize(
    ("changes", "epsilon"), [({"kappa": 500.0}, 1.0), ({"kappa": 1e6}, 100.0), ({"steps": 10_000}, 1e-4)]
)
def test_passes_that_do_not_fit_are_refused(changes: dict[str, Any], epsilon: float) -> None:
    with pytest.raises(InfeasiblePlan):
        directed(**changes).plan_within(stripes().schema, epsilon, DELTA)


def test_groups_are_refused_unless_one_batch_holds_them_all() -> None:
    names = np.arange(COUNT) // 2 * 10**12 + 7
    grouped = stripes(units=names, unit="patient", records_per_unit=2, classes_per_unit=2)
    with pytest.raises(InvalidSpec, match="position of single records"):
        directed().plan_within(grouped.schema, 1.0, DELTA)
    spec = job(directed(batch=COUNT // 2, steps=2))
    run(spec, grouped, account=MemoryAccount(spec.limit_units(grouped.schema)))
    called_records = stripes(units=np.arange(COUNT) * 10**12)
    with pytest.raises(InvalidSpec, match="position of single records"):
        run(job(directed()), called_records, account=MemoryAccount(limit_units(20.0, DELTA)))


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_a_killed_run_pays_once_and_takes_no_unit_twice_in_a_pass(
    sqlite_database: Database, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = stripes(40)
    method = directed(batch=10, steps=8)
    spec = job(method, 3.0)
    plan = spec.plan(dataset.schema)
    stored = new_dataset(sqlite_database, images(0, 40), epsilon=5.0)
    submitted = new_job(sqlite_database, stored.id, plan.cost(), spec=spec.model_dump(mode="json"), plan=plan)
    summed = np.zeros(40, dtype=int)
    noisy_sum, calls = VonMisesFisherSum.noisy_sum, [0]

    def dying(self: VonMisesFisherSum, contributions: Any, batch: Any, noise: Any) -> Any:
        summed[:] += batch
        drawn = noisy_sum(self, contributions, batch, noise)
        calls[0] += 1
        if calls[0] % every == 0:
            raise _Killed
        return drawn

    monkeypatch.setattr(VonMisesFisherSum, "noisy_sum", dying)
    steps_made = _until_it_ends(sqlite_database, submitted.id, spec, dataset)
    charges = [entry for entry in journal_of(sqlite_database, stored.id) if entry.kind == EntryKind.CHARGE]
    assert [entry.ledger_units for entry in charges if entry.ledger_units] == [plan.charge().ledger_units]
    assert summed.max() <= 2
    assert len(charges) == 8
    assert steps_made == 8 - 8 // every
    verified(sqlite_database, stored.id)


def _until_it_ends(database: Database, job_id: str, spec: TrainingSpec, dataset: Dataset) -> int:
    while True:
        lease = claimed(database, job_id)
        try:
            return run(spec, dataset, account=read_account(database, lease)).steps_made
        except _Killed:
            leases.give_back(database, lease)
        except BudgetExceeded:
            return 0
