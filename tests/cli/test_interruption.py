"""Ctrl-C during `datalens train`, at the moments when an exception out of nowhere would do harm."""

import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from cli.embedded_runs import job_and_spends, votes
from datalens_service.base.clock import utc_now
from datalens_service.cli import outcome as interruption_module
from datalens_service.cli.outcome import Interruption
from datalens_service.jobs.job_watch import ShutdownRequested
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import Job, JobState

Run = Callable[..., Result]

STEPS = 12
VOTES = votes(steps=STEPS)


@pytest.fixture(autouse=True)
def _as_in_the_foreground() -> Iterator[None]:
    """A shell starts what it puts in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class PressedTurn:
    """A lock that this thread has just taken, and does not know it yet, when somebody presses Ctrl-C.

    Args:
        presses: How often, one right after the other.
        after: Number of the transaction of the main thread.
    """

    def __init__(self, presses: int, after: int) -> None:
        self._lock = threading.Lock()
        self._presses = presses
        self._left = after
        self.pressed = False

    def acquire(self, timeout: float) -> bool:
        taken = self._lock.acquire(timeout=timeout)
        if threading.current_thread() is threading.main_thread():
            self._left -= 1
            if self._left == 0:
                self.pressed = True
                for _ in range(self._presses):
                    signal.raise_signal(signal.SIGINT)
        return taken

    def release(self) -> None:
        self._lock.release()


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch, datalens: Run, npz: Path) -> Callable[[int], Result]:
    """A run that is interrupted by so many presses in a transaction in the middle of its training."""
    original = Database.__init__

    def run(presses: int) -> Result:
        turn = PressedTurn(presses, after=12)

        def begin(database: Database, *arguments: Any) -> None:
            original(database, *arguments)
            database._turn = turn  # type: ignore[assignment]

        with monkeypatch.context() as patched:
            patched.setattr(Database, "__init__", begin)
            result = datalens("train", "--confirm-classes", "--data", npz, *VOTES)
        assert turn.pressed
        return result

    return run


def _job_and_steps() -> tuple[Job, list[int]]:
    """The job of the folder, and the steps that were charged."""
    job, spends = job_and_spends()
    return job, sorted(entry.step for entry in spends if entry.step is not None)


def test_ctrl_c_inside_a_transaction_gives_the_job_back_and_pays_no_step_twice(
    interrupted: Callable[[int], Result], datalens: Run, npz: Path
) -> None:
    result = interrupted(1)
    assert result.exit_code == 130, result.output
    assert "The same command continues from here" in result.stderr
    job, steps = _job_and_steps()
    assert (job.state, job.attempts) == (JobState.QUEUED, 0), "an interrupted run is not an attempt that failed"
    assert 0 < len(steps) < STEPS

    assert datalens("train", "--confirm-classes", "--data", npz, *VOTES).exit_code == 0
    assert _job_and_steps()[1] == list(range(STEPS))


def test_second_ctrl_c_ends_a_run_that_holds_the_lock_and_the_next_goes_on(
    interrupted: Callable[[int], Result], datalens: Run, npz: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the clock was ahead until then."""
    with monkeypatch.context() as patch:
        patch.setattr(leases, "read_database_clock", lambda _: utc_now() + timedelta(minutes=10))
        result = interrupted(2)
    # Whoever asked this database for anything more would wait in vain, and end with another code.
    assert result.exit_code == 130, result.output
    assert 0 < len(_job_and_steps()[1]) < STEPS

    assert datalens("train", "--confirm-classes", "--data", npz, *VOTES).exit_code == 0
    steps = _job_and_steps()[1]
    # A step that was charged and not stored is charged again; the plan pays for no more, so the last may be left out.
    assert len(steps) <= STEPS
    assert sorted(set(steps))[: STEPS - 1] == list(range(STEPS - 1))


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
