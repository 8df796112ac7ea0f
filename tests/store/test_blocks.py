"""Sampled runs on an account: one charge for all draws, slack held from the limit, nothing of either returns."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy.exc import IntegrityError

from datalens_service.base.errors import BudgetExceeded, LedgerCorrupt, StaleLease, StateConflict
from datalens_service.mechanisms import GradientSum, PlannedRelease
from datalens_service.methods import Plan
from datalens_service.privacy.accounting import (
    NeighboringRelation,
    compute_slack,
    delta_beside,
    epsilon_of_ledger_units,
    ledger_units_held_for_slack,
    limit_units,
)
from datalens_service.privacy.poisson_sampling import PoissonSampling, choose_numerator
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.charge_log import LogLine
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.account_summary import read_account as find_row
from datalens_service.store.ledger.recovery import check_against_log

from .backups import back_up
from .books import DELTA, EPSILON, by_hand, claimed, journal_of, new_dataset, new_job, read_account, state_of, verified

SLACK, UNITS, DRAWS, LABEL = compute_slack(DELTA, 0.05), 10**12, 5, "network.sampled_gradient"
LIMIT = limit_units(EPSILON, DELTA)
BLOCK = PoissonSampling(
    num_units=20, numerator=choose_numerator(4, 20), draws=DRAWS, slack=SLACK, ledger_units_zero_out=UNITS,
    ledger_units_replace_one=4 * UNITS,
)  # fmt: skip
SUM = np.arange(3, dtype=np.int64)


def plan_of(block: PoissonSampling = BLOCK) -> Plan:
    mechanism = GradientSum(dimensions=3, clip_norm=1.0, noise_stddev=10**5, sampling=block)
    return Plan(releases=(PlannedRelease(mechanism=mechanism, count=block.draws - 2),))


def sampled_job(database: Database, dataset_id: str, block: PoissonSampling = BLOCK) -> Job:
    return new_job(database, dataset_id, block.ledger_units_zero_out, plan=plan_of(block))


def test_the_first_draw_carries_the_block_and_the_others_nothing(database: Database) -> None:
    dataset = new_dataset(database)
    account = read_account(database, claimed(database, sampled_job(database, dataset.id).id))
    for step in range(3):
        account.charge_draw(step, LABEL, BLOCK)
        account.store(step, SUM)
    charges = [entry for entry in journal_of(database, dataset.id) if entry.kind == EntryKind.CHARGE]
    assert [(entry.ledger_units, entry.slack) for entry in charges] == [(UNITS, SLACK), (0, 0), (0, 0)]
    state = state_of(database, dataset.id)
    assert (state.charged_units, state.charged_slack, state.reserved_slack) == (UNITS, SLACK, 0)
    assert state.epsilon_spent >= epsilon_of_ledger_units(UNITS, delta_beside(SLACK, DELTA))
    verified(database, dataset.id)


def test_no_more_is_drawn_than_was_paid_for(database: Database) -> None:
    dataset = new_dataset(database)
    account = read_account(database, claimed(database, sampled_job(database, dataset.id).id))
    for _ in range(DRAWS):
        account.charge_draw(0, LABEL, BLOCK)
    with pytest.raises(BudgetExceeded, match="draws of the job are made"):
        account.charge_draw(0, LABEL, BLOCK)
    assert state_of(database, dataset.id).charged_units == UNITS


def test_slack_is_held_from_reservation_on_and_returns_only_if_nothing_was_drawn(database: Database) -> None:
    dataset = new_dataset(database)
    held = ledger_units_held_for_slack(SLACK, EPSILON, DELTA)
    for draws, remaining in ((0, LIMIT), (1, LIMIT - UNITS - held)):
        job = sampled_job(database, dataset.id)
        state = state_of(database, dataset.id)
        assert (state.reserved_slack, state.held_for_slack) == (SLACK, held)
        assert state.remaining_units == LIMIT - UNITS - held
        lease = claimed(database, job.id)
        for step in range(draws):
            read_account(database, lease).charge_draw(step, LABEL, BLOCK)
        jobs.request_cancel(database, job.id)
        leases.finish(database, lease, JobState.CANCELLED, None)
        assert state_of(database, dataset.id).remaining_units == remaining
        verified(database, dataset.id)


def test_what_is_said_to_remain_beside_slack_can_be_reserved(database: Database) -> None:
    """Units that slack takes are those of the whole account, so a small rest does not pay for a job of its ε."""
    dataset = new_dataset(database)
    new_job(database, dataset.id, LIMIT - limit_units(0.3, DELTA))
    state = state_of(database, dataset.id)
    assert state.epsilon_remaining == 0.3
    shown = state.epsilon_remaining_beside(SLACK)
    assert 0 < shown < 0.3
    asked = limit_units(0.3, delta_beside(SLACK, DELTA))
    with pytest.raises(BudgetExceeded, match=rf"0\.3 of 1 remains, {shown} for a job with sampled gradients"):
        sampled_job(database, dataset.id, BLOCK.model_copy(update={"ledger_units_zero_out": asked}))
    fitting = limit_units(shown, delta_beside(SLACK, DELTA))
    sampled_job(database, dataset.id, BLOCK.model_copy(update={"ledger_units_zero_out": fitting}))


def test_slack_of_every_job_counts(database: Database) -> None:
    """Two jobs that fit one by one may not fit together; the sum of slacks decides, not the larger one."""
    dataset = new_dataset(database)
    first = ledger_units_held_for_slack(SLACK, EPSILON, DELTA)
    both = ledger_units_held_for_slack(2 * SLACK, EPSILON, DELTA)
    assert both > first
    sampled_job(database, dataset.id)
    rest = LIMIT - UNITS - both
    with pytest.raises(BudgetExceeded):
        sampled_job(database, dataset.id, BLOCK.model_copy(update={"ledger_units_zero_out": rest + 1}))
    sampled_job(database, dataset.id, BLOCK.model_copy(update={"ledger_units_zero_out": rest}))
    assert state_of(database, dataset.id).remaining_units == 0
    with pytest.raises(BudgetExceeded):
        new_job(database, dataset.id, 1)
    verified(database, dataset.id)


def test_half_of_delta_is_the_most_that_slack_may_take(database: Database) -> None:
    dataset = new_dataset(database)
    large = BLOCK.model_copy(update={"slack": compute_slack(DELTA, 0.3)})
    sampled_job(database, dataset.id, large)
    with pytest.raises(BudgetExceeded):
        sampled_job(database, dataset.id, large)
    verified(database, dataset.id)


def test_a_raised_limit_holds_for_slack_anew(database: Database) -> None:
    dataset = new_dataset(database)
    sampled_job(database, dataset.id)
    with database.transaction() as session:
        account = ledger.lock_account(session, find_row(session, dataset.id).id)
        ledger.raise_limit(session, account, dataset.id, 3.0)
    assert state_of(database, dataset.id).held_for_slack == ledger_units_held_for_slack(SLACK, 3.0, DELTA)
    verified(database, dataset.id)


def test_a_draw_needs_its_lease_and_an_open_step(database: Database) -> None:
    dataset = new_dataset(database)
    job = sampled_job(database, dataset.id)
    lease = claimed(database, job.id)
    account = read_account(database, lease)
    account.charge_draw(0, LABEL, BLOCK)
    account.store(0, SUM)
    with pytest.raises(StateConflict):
        account.charge_draw(0, LABEL, BLOCK)
    leases.give_back(database, lease)
    with pytest.raises(StaleLease):
        account.charge_draw(1, LABEL, BLOCK)
    claimed(database, job.id)
    with pytest.raises(StaleLease):
        account.charge_draw(1, LABEL, BLOCK)


def test_a_block_that_was_not_reserved_is_refused(database: Database) -> None:
    dataset = new_dataset(database)
    account = read_account(database, claimed(database, new_job(database, dataset.id, UNITS).id))
    with pytest.raises(BudgetExceeded, match="reservation"):
        account.charge_draw(0, LABEL, BLOCK)
    assert journal_of(database, dataset.id)[-1].kind == EntryKind.RESERVE


def test_the_state_takes_the_place_of_sums(database: Database) -> None:
    dataset = new_dataset(database)
    account = read_account(database, claimed(database, sampled_job(database, dataset.id).id))
    state = {"weight.0": np.linspace(0, 1, 7, dtype=np.float32), "moment.0.step": np.array(3.0)}
    assert account.latest() is None
    with pytest.raises(StateConflict):
        account.advance(1, state)
    for step in range(3):
        account.charge_draw(step, LABEL, BLOCK)
        account.store(step, SUM)
    account.advance(2, state)
    latest = account.latest()
    assert latest is not None
    assert latest[0] == 2
    for name, value in state.items():
        np.testing.assert_array_equal(latest[1][name], value)
    assert [account.replay(step) is None for step in range(3)] == [True, True, False]
    with pytest.raises(StateConflict, match="stored already"):
        account.charge_draw(1, LABEL, BLOCK)
    with pytest.raises(StateConflict):
        account.advance(2, state)
    verified(database, dataset.id)
    by_hand(database, "UPDATE released_states SET payload = :payload", payload=b"other")
    with pytest.raises(LedgerCorrupt, match="altered"):
        account.latest()


def test_iterates_are_kept_in_the_place_of_sums_until_the_job_has_ended(database: Database) -> None:
    dataset = new_dataset(database)
    lease = claimed(database, sampled_job(database, dataset.id).id)
    account = read_account(database, lease)
    kept = np.arange(12, dtype=np.float32).reshape(4, 3)
    for step in range(4):
        account.charge_draw(step, LABEL, BLOCK)
        account.store(step, SUM)
        if step % 2:
            account.advance(step + 1, {"weight.0": kept[0]}, kept[step - 1 : step + 1])
    with pytest.raises(StateConflict):
        account.advance(4, {"weight.0": kept[0]}, kept[:2])
    np.testing.assert_array_equal(np.concatenate(account.iterates()), kept)
    by_hand(database, "UPDATE released_iterates SET payload = :payload", payload=b"other")
    with pytest.raises(LedgerCorrupt, match="altered"):
        account.iterates()
    leases.finish(database, lease, JobState.CANCELLED)
    assert account.iterates() == []


@pytest.mark.both_databases
def test_the_database_refuses_what_slack_does_not_leave(database: Database) -> None:
    dataset = new_dataset(database)
    account = read_account(database, claimed(database, sampled_job(database, dataset.id).id))
    account.charge_draw(0, LABEL, BLOCK)
    held = state_of(database, dataset.id).held_for_slack
    with pytest.raises(IntegrityError):
        by_hand(database, "UPDATE accounts SET reserved_units = :units", units=LIMIT - UNITS - held + 1)
    with pytest.raises(IntegrityError):
        by_hand(database, "UPDATE accounts SET charged_slack = charged_slack - 1")
    with pytest.raises(IntegrityError):
        by_hand(database, "UPDATE accounts SET held_for_slack = 0")


def test_a_restored_backup_brings_no_slack_back(database: Database) -> None:
    dataset = new_dataset(database)
    job = sampled_job(database, dataset.id)
    backup = back_up(database)
    account = read_account(database, claimed(database, job.id))
    for step in range(2):
        account.charge_draw(step, LABEL, BLOCK)
    backup.restore()
    again = Database(database.url, database.log)
    assert check_against_log(again) == ()
    state = state_of(again, dataset.id)
    assert (state.charged_units, state.charged_slack, state.reserved_slack) == (UNITS, SLACK, 0)
    later = read_account(again, claimed(again, job.id))
    for step in range(DRAWS - 2):
        later.charge_draw(step, LABEL, BLOCK)
    with pytest.raises(BudgetExceeded):
        later.charge_draw(4, LABEL, BLOCK)
    verified(again, dataset.id)


def test_epsilon_of_an_account_is_that_of_all_units_beside_all_slack(database: Database) -> None:
    dataset = new_dataset(database)
    for _ in range(3):
        account = read_account(database, claimed(database, sampled_job(database, dataset.id).id))
        account.charge_draw(0, LABEL, BLOCK)
    gaussian = read_account(database, claimed(database, new_job(database, dataset.id, UNITS).id))
    gaussian.charge(0, "moments", UNITS)
    exact = epsilon_of_ledger_units(4 * UNITS, delta_beside(3 * SLACK, DELTA))
    assert exact <= state_of(database, dataset.id).epsilon_spent <= exact + 1e-4
    assert math.isclose(BLOCK.charge(NeighboringRelation.REPLACE_ONE).ledger_units, 4 * UNITS)


def test_lines_of_the_log_have_a_slack_only_where_there_is_one() -> None:
    line = LogLine(
        account_id="a",
        dataset_id="d",
        job_id="j",
        step=0,
        label="x",
        ledger_units=0,
        lease_token=1,
        seq=3,
        hash="0" * 64,
    )
    assert b"slack" not in line.encoded()
    assert b'"units":0' in line.encoded()
    assert b'"slack":7' in replace(line, slack=7).encoded()
