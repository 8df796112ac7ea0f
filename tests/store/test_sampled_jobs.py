"""Sampled runs on real accounts: killed at any boundary, resumed, proved; every tampered proof is told apart."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import BudgetExceeded
from datalens_service.base.signatures import SigningKey
from datalens_service.data.dataset import Dataset, Split
from datalens_service.methods import DpSgd, Plan
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import Booleans, Integers, NoiseSource
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.proof.job_proof import JobProof
from datalens_service.proof.proof_verification import verify
from datalens_service.proof.verdict import VerificationResult
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger.account import JobAccount
from datalens_service.training import run

from .books import claimed, images, journal_of, new_dataset, new_job, prove, read_account, schema, state_of, verified
from .forging import Json, Tamper, change, put, seal_charges

STEPS, RECORDS = 6, 40
METHOD = DpSgd(architecture="linear", steps=STEPS, sampling="poisson", batch=10, noise_multiplier=6.0)
SPEC = TrainingSpec(method=METHOD, epsilon=3.0, delta=1e-5)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return SPEC.plan(schema(RECORDS))


@pytest.fixture
def records() -> Dataset:
    labels = np.random.default_rng(0).integers(0, 2, RECORDS)
    return Dataset(schema(RECORDS), Split(images(0, RECORDS), labels), None, b"k" * 32)


def submitted(database: Database, plan: Plan) -> Job:
    dataset = new_dataset(database, images(0, RECORDS), epsilon=5.0)
    return new_job(database, dataset.id, plan.cost(), spec=SPEC.model_dump(mode="json"), plan=plan)


class _Killed(BaseException):
    """The process ends here."""


class Boundaries:
    """Where a process may die: before and after each charge, after the coins, after the noise, after each store."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.coins = 0

    def pass_one(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise _Killed

    def account(self, account: JobAccount) -> Any:
        boundaries = self

        class Dying:
            replay, latest, advance = account.replay, account.latest, account.advance

            def charge_draw(self, *arguments: Any) -> int:
                boundaries.pass_one()
                drawn = account.charge_draw(*arguments)
                boundaries.pass_one()
                return drawn

            def store(self, step: int, noisy: Integers) -> None:
                boundaries.pass_one()
                account.store(step, noisy)
                boundaries.pass_one()

        return Dying()

    def count_coins(self, patch: pytest.MonkeyPatch) -> None:
        fall = NoiseSource.coins

        def counted(source: NoiseSource, count: int, numerator: int) -> Booleans:
            self.coins += 1
            return fall(source, count, numerator)

        patch.setattr(NoiseSource, "coins", counted)


@pytest.mark.parametrize("every", [1, 2, 3, 4, 5, 7, 11])
def test_a_run_that_is_killed_again_and_again_pays_once_and_draws_no_more_than_planned(
    sqlite_database: Database, plan: Plan, records: Dataset, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, job = sqlite_database, submitted(sqlite_database, plan)
    counter = Boundaries(0)
    counter.count_coins(monkeypatch)

    def boundaries(account: JobAccount) -> Any:
        return Boundaries(every).account(account)

    made = 0
    for kills in range(1, 9):
        lease = claimed(database, job.id)
        account = read_account(database, lease)
        try:
            made = run(SPEC, records, account=boundaries(account) if kills < 8 else account, plan=plan).steps_made
            break
        except (_Killed, BudgetExceeded):
            leases.give_back(database, lease)
    block = plan.releases[0].mechanism.block()
    assert block is not None
    charges = [entry for entry in journal_of(database, job.dataset_id) if entry.kind == EntryKind.CHARGE]
    assert [entry.ledger_units for entry in charges if entry.ledger_units] == [block.ledger_units_zero_out]
    assert counter.coins <= len(charges) <= block.draws == STEPS + 2
    assert made <= STEPS
    assert made == STEPS or len(charges) == block.draws
    assert state_of(database, job.dataset_id).charged_slack == block.slack
    verified(database, job.dataset_id)


@pytest.fixture
def proof(sqlite_database: Database, plan: Plan, records: Dataset) -> tuple[Json, Json]:
    """Of the job and of its account."""
    database, job = sqlite_database, submitted(sqlite_database, plan)
    result = run(SPEC, records, account=read_account(database, claimed(database, job.id)), plan=plan)
    account = prove(database, job, SPEC, records.schema, plan, result.steps_made, "classifier")
    return JobProof.from_account_proof(account).model_dump(mode="json"), account.model_dump(mode="json")


def checked(content: Json) -> VerificationResult:
    return verify(json.dumps(SigningKey(b"of a forger").sign(content)).encode())


def test_proofs_of_sampled_jobs_hold(proof: tuple[Json, Json]) -> None:
    for content in proof:
        verdict = checked(content)
        assert verdict.holds, verdict.contradiction


STATED = ("plan.0.mechanism.", "card.privacy.mechanisms.0.")
FIRST = "charges.0."


def on_plan_and_card(member: str, new: Callable[[int], int]) -> list[Tamper]:
    """So that both say the same."""
    return [change(f"{place}{member}", new) for place in STATED]


def draw(member: str, new: Callable[[int], int]) -> list[Tamper]:
    return on_plan_and_card(f"sampling.{member}", new)


def less(number: int) -> int:
    return number * 9 // 10


def more(number: int) -> int:
    return number * 11 // 10


def split_over_draws(content: Json) -> None:
    """As if later draws could be returned."""
    whole = content["charges"][0]["units"]
    content["charges"][0]["units"], content["charges"][1]["units"] = whole - whole // 2, whole // 2


TAMPERED: dict[str, list[Tamper]] = {
    "higher rate": draw("numerator", more),
    "lower rate": draw("numerator", less),
    "more draws": draw("draws", lambda draws: draws + 20),
    "fewer draws than were made": draw("draws", lambda draws: draws - 5),
    "more slack": draw("slack", lambda slack: slack * 2),
    "less slack": draw("slack", lambda slack: slack // 2),
    "another unit": draw("num_units", lambda units: units + 1),
    "a slightly lower price": draw("units_zero_out", lambda units: units - units // 100_000),
    "a lower price of a replacement": draw("units_replace_one", lambda units: units // 2),
    "less noise": on_plan_and_card("noise_stddev", less),
    "more noise": on_plan_and_card("noise_stddev", more),
    "cheaper everywhere": [
        *draw("units_zero_out", less),
        *draw("units_replace_one", less),
        *(change(place, less) for place in ("card.privacy.units", f"{STATED[1]}units", f"{FIRST}units")),
        seal_charges,
    ],
    "no slack": [put(f"{FIRST}slack", 0), put("card.privacy.slack", 0), seal_charges],
    "charged by step": [split_over_draws, seal_charges],
}


@pytest.mark.parametrize("tampered", TAMPERED)
def test_what_was_tampered_with_is_refused(proof: tuple[Json, Json], tampered: str) -> None:
    for tamper in TAMPERED[tampered]:
        tamper(proof[0])
    assert not checked(proof[0]).holds


def test_the_statement_says_what_replacing_a_unit_costs(plan: Plan) -> None:
    block = plan.releases[0].mechanism.block()
    assert block is not None
    assert plan.charge(NeighboringRelation.REPLACE_ONE) == (block.ledger_units_replace_one, block.slack)
    assert block.ledger_units_replace_one > block.ledger_units_zero_out
