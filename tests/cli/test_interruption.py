"""Ctrl-C during `datalens train`, at the moments when an exception out of nowhere would do harm."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from datalens_service.cli import interruption as interruption_module
from datalens_service.cli.interruption import Interruption
from datalens_service.cli.local import workbench
from datalens_service.store import jobs, statement, verification
from datalens_service.store.chain import EntryKind
from datalens_service.store.database import Database
from datalens_service.store.jobs import JobState
from workers.observer import ShutdownRequested

Run = Callable[..., Result]

STEPS = 12
VOTES = (
    *("--method", "datalens", "--images", "50", "--no-evaluate", "--epsilon", "2", "--out", "out"),
    *("--set", "num_teachers=8", "--set", "images_per_step=4", "--set", "top_k=8", "--set", "threshold=none"),
    *("--set", "teacher_batch=4", "--set", "teacher_warmup_steps=2", "--set", f"steps={STEPS}"),
)


@pytest.fixture(autouse=True)
def _as_in_the_foreground() -> Iterator[None]:
    """A shell starts what it puts in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class PressedTurn:
    """A lock that this thread has just taken, and does not know it yet, when somebody presses Ctrl-C."""

    def __init__(self, lock: threading.Lock, after: int) -> None:
        self._lock = lock
        self._left = after
        self.pressed = False

    def acquire(self, timeout: float) -> bool:
        taken = self._lock.acquire(timeout=timeout)
        if threading.current_thread() is threading.main_thread():
            self._left -= 1
            if self._left == 0:
                self.pressed = True
                signal.raise_signal(signal.SIGINT)
        return taken

    def release(self) -> None:
        self._lock.release()


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> PressedTurn:
    """Of everybody who writes, until the first run has been interrupted in a step's charge."""
    turn = PressedTurn(threading.Lock(), after=12)
    original = Database.__init__

    def begin(database: Database, *arguments: Any) -> None:
        original(database, *arguments)
        database._turn = turn

    monkeypatch.setattr(Database, "__init__", begin)
    return turn


def test_ctrl_c_inside_a_transaction_gives_the_job_back_and_pays_no_step_twice(
    datalens: Run, npz: Path, turn: PressedTurn
) -> None:
    command = ("train", "--data", npz, *VOTES)
    result = datalens(*command)
    assert turn.pressed
    assert result.exit_code == 130, result.output
    assert "The same command goes on from here" in result.stderr

    with workbench(Path("out")) as bench:
        [job] = jobs.list_jobs(bench.database).items
    assert (job.state, job.attempts) == (JobState.QUEUED, 0), "an interrupted run is not an attempt that failed"

    assert datalens(*command).exit_code == 0
    with workbench(Path("out")) as bench, bench.database.session() as session:
        verification.verify_chain(session, job.dataset_id)
        steps = [entry.step for entry in statement.entries(session, job.dataset_id) if entry.kind == EntryKind.CHARGE]
    assert sorted(steps) == list(range(len(steps)))
    assert len(steps) >= STEPS


def test_first_ctrl_c_asks_and_the_second_interrupts(capfd: pytest.CaptureFixture[str]) -> None:
    with Interruption() as interruption:
        interruption.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(ShutdownRequested):
            interruption.check()
        assert "Ctrl-C again stops at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_first_ctrl_c_only_asks_if_nobody_can_hear_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption_module, "_STDERR", -1)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(ShutdownRequested):
            interruption.check()


def test_after_the_block_ctrl_c_is_what_it_was() -> None:
    with Interruption():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ignored_ctrl_c_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        interruption.check()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
