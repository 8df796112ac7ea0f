"""Real jobs, killed and stopped at every point of a step: never less charged than drawn, one sum per step."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from datalens_service.base.errors import StoreUnavailable
from datalens_service.privacy.accounting import limit_units
from datalens_service.store import database as store
from datalens_service.store.database import Database
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger.recovery import check_against_log
from datalens_service.store.schema.tables import AggregateRow

from .books import DELTA, claimed, journal_of, new_dataset, new_job, running_job, verified
from .crashing import AFTER_CHARGE, BEFORE_COMMIT, POINTS, STALE, UNAVAILABLE, Fault, Workplace, costs_of, job_of, start

JOB = job_of(votes=2)
COSTS = costs_of(JOB)
STEPS = len(COSTS)
# The last release of moments, and the first vote.
HIT_STEPS = (2, 3)
# Booked charges of a job of five steps, one of which was hit at the point, after its second worker has ended.
CHARGES_AFTER = dict(zip(POINTS, (5, 6, 6, 6, 5), strict=True))

Record = Callable[[str, object], None]


@pytest.mark.parametrize("step", HIT_STEPS)
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_at_any_point_never_leaves_a_draw_uncharged(
    database: Database, point: str, step: int, record_property: Record
) -> None:
    # Enough for the whole job and for the step that is hit, once more.
    dataset, lease, _ = running_job(database, ledger_units=sum(COSTS) + COSTS[step])
    workplace = Workplace.of(database)
    killed = start(workplace, lease, JOB, Fault(step, point, signal.SIGKILL))
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    record_property("kills", 1)
    assert check_against_log(database) == ()
    _finish(database, claimed(database, lease.job_id, now=_hours_from_now(1)))

    balance = verified(database, dataset.id)
    assert _charges(database, dataset.id) == CHARGES_AFTER[point]
    assert balance.total_charged == sum(COSTS) + (CHARGES_AFTER[point] - STEPS) * COSTS[step]
    assert balance.total_charged >= sum(COSTS[drawn] for drawn in workplace.draws())
    assert _stored_steps(database) == list(range(STEPS))


# Between log and commit it holds a lock, and what happens depends on the database: the two tests after this one.
@pytest.mark.parametrize("step", HIT_STEPS)
@pytest.mark.parametrize("point", [point for point in POINTS if point != BEFORE_COMMIT])
def test_a_worker_stopped_at_any_point_and_woken_after_its_job_was_given_away_draws_nothing_more(
    database: Database, point: str, step: int, record_property: Record
) -> None:
    dataset, lease, _ = running_job(database, ledger_units=2 * sum(COSTS))
    workplace = Workplace.of(database)
    first = _stopped(workplace, lease, Fault(step, point, signal.SIGSTOP))
    record_property("stops", 1)
    second_lease = claimed(database, lease.job_id, now=_hours_from_now(1))
    before = workplace.draws()
    # A worker that was charged before it was stopped may draw once more: that draw is paid for and not kept.
    allowed = 1 if point == AFTER_CHARGE else 0
    assert _woken(first) == STALE
    assert len(workplace.draws()) == len(before) + allowed

    _finish(database, second_lease)
    assert verified(database, dataset.id).total_charged >= sum(COSTS[drawn] for drawn in workplace.draws())
    assert _stored_steps(database) == list(range(STEPS))


@pytest.mark.postgres
def test_postgresql_takes_the_locks_from_a_worker_stopped_before_its_commit(
    postgresql_database: Database, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends its session, so another can claim the job. The line in the log counts at the next charge."""
    dataset, lease, _ = running_job(postgresql_database, ledger_units=2 * sum(COSTS))
    workplace = Workplace.of(postgresql_database)
    with monkeypatch.context() as patched:
        patched.setattr(store, "_POSTGRESQL_OPTIONS", "-c idle_in_transaction_session_timeout=5s")
        first = _stopped(workplace, lease, Fault(3, BEFORE_COMMIT, signal.SIGSTOP))
    record_property("stops", 1)
    second_lease = claimed(postgresql_database, lease.job_id, now=_hours_from_now(1))
    before = workplace.draws()
    assert _woken(first) == UNAVAILABLE
    assert workplace.draws() == before

    _finish(postgresql_database, second_lease)
    assert verified(postgresql_database, dataset.id).total_charged == sum(COSTS) + COSTS[3]
    assert check_against_log(postgresql_database) == ()
    assert verified(postgresql_database, dataset.id).total_charged == sum(COSTS) + COSTS[3]
    assert _stored_steps(postgresql_database) == list(range(STEPS))


def test_sqlite_stays_locked_by_a_worker_stopped_before_its_commit_until_it_is_woken(
    sqlite_database: Database, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file has no server that could take its lock away: nobody else gets the job, and nothing is lost."""
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.2)
    dataset, lease, _ = running_job(sqlite_database, ledger_units=2 * sum(COSTS))
    impatient = Database(sqlite_database.url, sqlite_database.log)
    first = _stopped(Workplace.of(sqlite_database), lease, Fault(3, BEFORE_COMMIT, signal.SIGSTOP))
    record_property("stops", 1)
    with pytest.raises(StoreUnavailable):
        claimed(impatient, lease.job_id, now=_hours_from_now(1))
    impatient.dispose()
    assert _woken(first) == 0
    assert check_against_log(sqlite_database) == ()
    assert verified(sqlite_database, dataset.id).total_charged == sum(COSTS)
    assert _stored_steps(sqlite_database) == list(range(STEPS))


@pytest.mark.both_databases
def test_workers_killed_at_random_moments_never_leave_a_draw_uncharged(
    database: Database, record_property: Record
) -> None:
    rounds = 8
    long_job = job_of(votes=1000)
    costs = costs_of(long_job)
    dataset = new_dataset(database, epsilon=5.0)
    job = new_job(database, dataset.id, limit_units(4.0, DELTA), max_attempts=1000)
    workplace = Workplace.of(database)
    for round_number in range(rounds):
        before = len(workplace.draws())
        worker = start(workplace, claimed(database, job.id, now=_hours_from_now(round_number)), long_job)
        while len(workplace.draws()) == before:
            time.sleep(0.001)
        time.sleep(0.004 * round_number)
        worker.kill()
        worker.join()
    record_property("kills", rounds)
    check_against_log(database)
    draws = workplace.draws()
    assert len(draws) >= rounds
    assert verified(database, dataset.id).total_charged >= sum(costs[drawn] for drawn in draws)
    # Each lost worker costs at most the step it was at.
    assert _charges(database, dataset.id) <= len(_stored_steps(database)) + rounds


def _stopped(workplace: Workplace, lease: Lease, fault: Fault) -> multiprocessing.Process:
    worker = start(workplace, lease, JOB, fault)
    assert worker.pid is not None
    assert os.WIFSTOPPED(os.waitpid(worker.pid, os.WUNTRACED)[1])
    return worker


def _woken(worker: multiprocessing.Process) -> int | None:
    """How it ended."""
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGCONT)
    worker.join()
    return worker.exitcode


def _finish(database: Database, lease: Lease) -> None:
    worker = start(Workplace.of(database), lease, JOB)
    worker.join()
    assert worker.exitcode == 0


def _charges(database: Database, dataset_id: str) -> int:
    return sum(entry.kind in ("charge", "recovered") for entry in journal_of(database, dataset_id))


def _stored_steps(database: Database) -> list[int]:
    with database.session() as session:
        stored = list(session.scalars(select(AggregateRow.step).order_by(AggregateRow.step)))
        assert session.scalar(select(func.count()).select_from(AggregateRow)) == len(set(stored))
    return stored


def _hours_from_now(hours: int) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)
