"""A worker in a process of its own that charges, draws and stores steps, and can be hit by a signal at any point.

Forked, so that it starts in milliseconds; it opens connections of its own and touches none of its parent's.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datalens_service.errors import BudgetExceeded, StaleLease
from datalens_service.store.account import JobAccount
from datalens_service.store.database import Database
from datalens_service.store.leases import Lease
from datalens_service.store.mirror import LedgerLog, LogLine

STALE = 7
UNITS = 10

POINTS = ("before the charge", "between log and commit", "after the charge", "after the draw", "after the store")


@dataclass(frozen=True)
class Fault:
    """The signal that the worker gets when it passes `point` of `step`."""

    step: int
    point: str
    signal: int


@dataclass(frozen=True)
class Workplace:
    """What a worker needs to know; `drawn` has one line per draw."""

    url: str
    log: Path
    drawn: Path

    @classmethod
    def of(cls, database: Database) -> Workplace:
        assert database.log is not None
        return cls(database.url, database.log.path, database.log.path.with_name("drawn"))

    def draws(self) -> list[int]:
        return [int(line) for line in self.drawn.read_text().split()] if self.drawn.exists() else []


def start(workplace: Workplace, lease: Lease, steps: int, fault: Fault | None = None) -> multiprocessing.Process:
    """A running worker; it exits with 0 when all steps are stored, with STALE when it was replaced."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_work, args=(workplace, lease, steps, fault))
    process.start()
    return process  # type: ignore[return-value]


class _Log(LedgerLog):
    def __init__(self, path: Path, passing: Callable[[int, str], None]) -> None:
        super().__init__(path)
        self._passing = passing

    def append(self, line: LogLine) -> None:
        super().append(line)
        self._passing(line.step, "between log and commit")


def _work(workplace: Workplace, lease: Lease, steps: int, fault: Fault | None) -> None:
    def passing(step: int, point: str) -> None:
        if fault is not None and (fault.step, fault.point) == (step, point):
            os.kill(os.getpid(), fault.signal)

    account = JobAccount(Database(workplace.url, _Log(workplace.log, passing)), lease.job_id, lease.token)
    try:
        for step in range(steps):
            if account.replay(step) is None:
                _release(account, workplace, lease, step, passing)
    except StaleLease:
        sys.exit(STALE)
    except BudgetExceeded:
        sys.exit(0)


def _release(
    account: JobAccount, workplace: Workplace, lease: Lease, step: int, passing: Callable[[int, str], None]
) -> None:
    passing(step, "before the charge")
    account.charge(step, "votes", UNITS)
    passing(step, "after the charge")
    with workplace.drawn.open("a") as file:
        file.write(f"{step}\n")
    passing(step, "after the draw")
    account.store(step, np.full(3, lease.token, dtype=np.int64))
    passing(step, "after the store")
