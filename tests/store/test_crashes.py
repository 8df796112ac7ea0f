"""Real processes, killed and stopped at every point of a step: never less charged than drawn, one sum per step."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from datalens_service.privacy.accounting import limit_units
from datalens_service.store.database import Database
from datalens_service.store.recovery import check_against_log
from datalens_service.store.tables import AggregateRow

from .books import DELTA, claimed, journal_of, new_dataset, new_job, running_job, verified
from .crashing import POINTS, STALE, UNITS, Fault, Workplace, start

STEPS = 5
# Booked units of a job of five steps whose third was hit at the point, after its second worker has ended.
CHARGES_AFTER = dict(zip(POINTS, (5, 6, 6, 6, 5), strict=True))


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_at_any_point_never_leaves_a_draw_uncharged(database: Database, point: str) -> None:
    dataset, lease, _ = running_job(database)
    workplace = Workplace.of(database)
    killed = start(workplace, lease, STEPS, Fault(2, point, signal.SIGKILL))
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert check_against_log(database) == ()
    second = start(workplace, claimed(database, lease.job_id, now=_hours_from_now(1)), STEPS)
    second.join()
    assert second.exitcode == 0

    balance = verified(database, dataset.id)
    assert balance.total_charged == UNITS * CHARGES_AFTER[point]
    assert balance.total_charged >= UNITS * len(workplace.draws())
    assert _stored_steps(database) == list(range(STEPS))


@pytest.mark.parametrize("point", [point for point in POINTS if point != "between log and commit"])
def test_a_worker_stopped_at_any_point_and_woken_after_its_job_was_given_away_draws_nothing_more(
    database: Database, point: str
) -> None:
    dataset, lease, _ = running_job(database)
    workplace = Workplace.of(database)
    first = start(workplace, lease, STEPS, Fault(2, point, signal.SIGSTOP))
    assert first.pid is not None
    assert os.WIFSTOPPED(os.waitpid(first.pid, os.WUNTRACED)[1])
    second_lease = claimed(database, lease.job_id, now=_hours_from_now(1))
    before = workplace.draws()
    os.kill(first.pid, signal.SIGCONT)
    first.join()
    # A worker that was charged before it was stopped may draw once more: that draw is paid for and not kept.
    allowed = 1 if point == "after the charge" else 0
    assert first.exitcode == STALE
    assert len(workplace.draws()) == len(before) + allowed

    second = start(workplace, second_lease, STEPS)
    second.join()
    assert second.exitcode == 0
    assert verified(database, dataset.id).total_charged >= UNITS * len(workplace.draws())
    assert _stored_steps(database) == list(range(STEPS))


def test_workers_killed_at_random_moments_never_leave_a_draw_uncharged(database: Database) -> None:
    dataset = new_dataset(database)
    job = new_job(database, dataset.id, limit_units(0.5, DELTA), max_attempts=1000)
    workplace = Workplace.of(database)
    for round_number in range(8):
        before = len(workplace.draws())
        worker = start(workplace, claimed(database, job.id, now=_hours_from_now(round_number)), steps=10**6)
        while len(workplace.draws()) == before:
            time.sleep(0.001)
        time.sleep(0.004 * round_number)
        worker.kill()
        worker.join()
    check_against_log(database)
    draws = workplace.draws()
    assert len(draws) >= 8
    assert verified(database, dataset.id).total_charged >= UNITS * len(draws)
    charges = [entry for entry in journal_of(database, dataset.id) if entry.kind in ("charge", "recovered")]
    # Each lost worker costs at most the step it was at.
    assert len(charges) <= len(_stored_steps(database)) + 8


def _stored_steps(database: Database) -> list[int]:
    with database.session() as session:
        stored = list(session.scalars(select(AggregateRow.step).order_by(AggregateRow.step)))
        assert session.scalar(select(func.count()).select_from(AggregateRow)) == len(set(stored))
    return stored


def _hours_from_now(hours: int) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)
