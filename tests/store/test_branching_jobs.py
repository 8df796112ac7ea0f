"""Jobs whose plan has branches on real accounts: either branch pays the same slack, once, and its proof holds."""

import json
from typing import Any

import pytest

from datalens_service.base.errors import BudgetExceeded
from datalens_service.base.signatures import SigningKey
from datalens_service.data.dataset import Dataset
from datalens_service.methods import Plan
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.proof.job_proof import JobProof
from datalens_service.proof.proof_verification import verify
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger import ledger
from datalens_service.training import Result, run
from tests.methods.test_rejection_or_diffusion import CONTENTS, DELTA, DRAWINGS, EPSILON, METHOD, OBJECTS

from .books import claimed, journal_of, new_dataset, new_job, prove, read_account, state_of, verified
from .forging import seal_charges

SPEC = TrainingSpec(method=METHOD, epsilon=EPSILON, delta=DELTA)
KEY = SigningKey(b"of a forger")
ACCOUNT_EPSILON = 2 * EPSILON


@pytest.fixture(scope="module")
def plan() -> Plan:
    return SPEC.plan(DRAWINGS.schema)


def submitted(database: Database, dataset: Dataset, plan: Plan) -> Job:
    stored = new_dataset(database, dataset.train.images, epsilon=ACCOUNT_EPSILON, delta=DELTA)
    return new_job(database, stored.id, plan.cost(), spec=SPEC.model_dump(mode="json"), plan=plan)


def proof_of(database: Database, job: Job, result: Result) -> dict[str, Any]:
    account = prove(database, job, SPEC, DRAWINGS.schema, result.plan, result.steps_made)
    return KEY.sign(JobProof.from_account_proof(account).model_dump(mode="json"))


@CONTENTS
def test_either_branch_pays_the_slack_and_proves_it(
    sqlite_database: Database, content: str, dataset: Dataset, plan: Plan
) -> None:
    job = submitted(sqlite_database, dataset, plan)
    result = run(SPEC, dataset, account=read_account(sqlite_database, claimed(sqlite_database, job.id)), plan=plan)
    assert result.plan == plan.along(content)
    state = state_of(sqlite_database, job.dataset_id)
    assert (state.charged_units, state.charged_slack) == plan.along(content).charge()
    assert state.charged_slack == plan.slack
    proof = proof_of(sqlite_database, job, result)
    verdict = verify(json.dumps(proof).encode())
    assert verdict.holds, verdict.contradiction
    verified(sqlite_database, job.dataset_id)


def test_a_proof_of_drawings_without_the_slack_is_refused(sqlite_database: Database, plan: Plan) -> None:
    job = submitted(sqlite_database, DRAWINGS, plan)
    result = run(SPEC, DRAWINGS, account=read_account(sqlite_database, claimed(sqlite_database, job.id)), plan=plan)
    proof = proof_of(sqlite_database, job, result)
    proof["charges"][1]["slack"] = proof["card"]["privacy"]["slack"] = 0
    seal_charges(proof)
    assert "slack" in str(verify(json.dumps(KEY.sign(proof)).encode()).contradiction)


def test_a_lost_release_is_charged_again_without_its_slack(sqlite_database: Database, plan: Plan) -> None:
    job = submitted(sqlite_database, DRAWINGS, plan)
    account = read_account(sqlite_database, claimed(sqlite_database, job.id))
    means = plan.branches["drawings"][0].mechanism
    ledger_units = means.price(1, NeighboringRelation.ZERO_OUT).ledger_units
    for _ in range(2):
        account.charge(1, means.label(), ledger_units, plan.slack)
    charges = [entry for entry in journal_of(sqlite_database, job.dataset_id) if entry.kind == EntryKind.CHARGE]
    assert [(entry.ledger_units, entry.slack) for entry in charges] == [(ledger_units, plan.slack), (ledger_units, 0)]
    with pytest.raises(BudgetExceeded):
        account.charge(2, means.label(), 1, 1)
    verified(sqlite_database, job.dataset_id)


def test_a_job_of_objects_that_lost_a_release_hands_out_the_warm_start(sqlite_database: Database, plan: Plan) -> None:
    """Its gradients are paid for as one block, which no longer fits."""
    job = submitted(sqlite_database, OBJECTS, plan)
    account = read_account(sqlite_database, claimed(sqlite_database, job.id))
    path = plan.along("objects")
    account.charge(0, plan.releases[0].mechanism.label(), plan.cost() - path.cost() + 1, 0)
    result = run(SPEC, OBJECTS, account=account, plan=plan)
    made = path.steps - path.releases[-1].count
    assert (result.generator.kind, result.steps_made) == ("rejection", made)
    assert result.rationale.startswith("The result is the warm start alone.")
    assert f"ended after {made} of {path.steps} planned releases" in result.rationale
    verified(sqlite_database, job.dataset_id)


def test_what_is_left_goes_back_without_the_slack(sqlite_database: Database, plan: Plan) -> None:
    job = submitted(sqlite_database, OBJECTS, plan)
    lease = claimed(sqlite_database, job.id)
    run(SPEC, OBJECTS, account=read_account(sqlite_database, lease), plan=plan)
    with sqlite_database.transaction() as session:
        left = ledger.settle(session, job.id)
    assert left == plan.cost() - plan.along("objects").cost() > 0
    state = state_of(sqlite_database, job.dataset_id)
    assert (state.reserved_units, state.reserved_slack, state.charged_slack) == (0, 0, plan.slack)
