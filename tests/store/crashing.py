"""A tiny DataLens job in a process of its own, with the product's own code, that a signal can hit at any point.

Forked, so that it starts in milliseconds; it opens connections of its own and touches none of its parent's.
"""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

# Here once, so that no forked worker has to import it.
import datalens_service.methods.voting.training_run  # noqa: F401
from datalens_service.base.errors import StaleLease, StoreUnavailable
from datalens_service.data.dataset import Dataset, Split
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.spec import TrainingSpec
from datalens_service.store.charge_log import ChargeLog, LogLine
from datalens_service.store.database import Database
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger.account import Integers, JobAccount
from datalens_service.training import run

from .books import DELTA, images, schema

STALE = 7
UNAVAILABLE = 8

BEFORE_CHARGE = "before the charge"
BEFORE_COMMIT = "between log and commit"
AFTER_CHARGE = "after the charge"
AFTER_DRAW = "after the draw"
AFTER_STORE = "after the store"
POINTS = (BEFORE_CHARGE, BEFORE_COMMIT, AFTER_CHARGE, AFTER_DRAW, AFTER_STORE)


def job_of(votes: int) -> TrainingSpec:
    """Three releases of moments, then votes of four teachers on the records of `books.images`."""
    small = {"num_teachers": 4, "images_per_step": 2, "top_k": 4, "teacher_batch": 2, "z_dim": 2, "refiner_width": 1}
    quick = {"teacher_steps": 1, "teacher_warmup_steps": 1, "threshold": "none", "steps": votes}
    method = {"name": "datalens", "warm_start": {"name": "moments", "subspace_dimensions": 2}, **small, **quick}
    return TrainingSpec.model_validate({"method": method, "epsilon": 0.5, "delta": DELTA})


def costs_of(job: TrainingSpec) -> list[int]:
    """Units of every step."""
    return [release.mechanism.cost() for release in job.plan(schema()).releases for _ in range(release.count)]


@dataclass(frozen=True)
class Fault:
    """The signal that the worker gets when it passes `point` of `step`."""

    step: int
    point: str
    signal: int


@dataclass(frozen=True)
class Workplace:
    """What a worker needs to know; `drawn` gets one line before each draw."""

    url: str
    log: Path
    drawn: Path

    @classmethod
    def of(cls, database: Database) -> Workplace:
        assert database.log is not None
        return cls(database.url, database.log.path, database.log.path.with_name("drawn"))

    def draws(self) -> list[int]:
        return [int(line) for line in self.drawn.read_text().split()] if self.drawn.exists() else []


_PATIENCE = 60.0


def start(workplace: Workplace, lease: Lease, job: TrainingSpec, fault: Fault | None = None) -> multiprocessing.Process:
    """A running worker; it exits with 0 when the job is done, with STALE when it was replaced."""
    context = multiprocessing.get_context("fork")
    while True:
        opened = context.Event()
        process = context.Process(target=_work, args=(workplace, lease, job, fault, opened.set))
        process.start()
        # A thread of the parent may have held SQLite's own lock, which nobody frees in the fork.
        if opened.wait(_PATIENCE):
            return process  # type: ignore[return-value]
        process.kill()
        process.join()


class _Passage:
    """Where the worker is in its step; its fault strikes here."""

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault
        self.step = -1

    def at(self, point: str) -> None:
        if self._fault is not None and (self._fault.step, self._fault.point) == (self.step, point):
            os.kill(os.getpid(), self._fault.signal)


class _Log(ChargeLog):
    def __init__(self, path: Path, passage: _Passage) -> None:
        super().__init__(path)
        self._passage = passage

    def append(self, line: LogLine, checked: int) -> int:
        length = super().append(line, checked)
        self._passage.at(BEFORE_COMMIT)
        return length


class _Account(JobAccount):
    def __init__(self, database: Database, lease: Lease, passage: _Passage) -> None:
        super().__init__(database, lease.job_id, lease.token)
        self._passage = passage

    def replay(self, step: int) -> Integers | None:
        self._passage.step = step
        return super().replay(step)

    def charge(self, step: int, label: str, ledger_units: int, slack: int = 0) -> None:
        self._passage.at(BEFORE_CHARGE)
        super().charge(step, label, ledger_units, slack)
        self._passage.at(AFTER_CHARGE)

    def store(self, step: int, noisy: Integers) -> None:
        super().store(step, noisy)
        self._passage.at(AFTER_STORE)


def _watched(draw: Callable[..., Integers], passage: _Passage, drawn: Path) -> Callable[..., Integers]:
    def watched(source: NoiseSource, shape: tuple[int, ...], noise_stddev: int) -> Integers:
        with drawn.open("a") as file:
            file.write(f"{passage.step}\n")
        noise = draw(source, shape, noise_stddev)
        passage.at(AFTER_DRAW)
        return noise

    return watched


def _work(
    workplace: Workplace, lease: Lease, job: TrainingSpec, fault: Fault | None, say_opened: Callable[[], None]
) -> None:
    with closing(sqlite3.connect(":memory:")):
        say_opened()
    # The threads of the parent's pools were not forked.
    torch.set_num_threads(1)
    passage = _Passage(fault)
    # The class is final and `run` makes its own: the method is replaced, in this process only.
    NoiseSource.discrete_gaussian = _watched(NoiseSource.discrete_gaussian, passage, workplace.drawn)
    account = _Account(Database(workplace.url, _Log(workplace.log, passage)), lease, passage)
    records = Split(images(), np.arange(len(images()), dtype=np.int64) % 2)
    try:
        run(job, Dataset(schema(), records, None, b"k" * 32), account=account)
    except StaleLease:
        sys.exit(STALE)
    except StoreUnavailable:
        sys.exit(UNAVAILABLE)
