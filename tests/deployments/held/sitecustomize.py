"""Loaded by every Python process under test: one that does a job stands still where the test holds it (`hold.py`).

The file HELD_JOBS names a method of the job's account and a step. Behind that step the process waits until the file is
gone, or until somebody asks it to end. It looks for requests between any two steps, so that one made while it was held
is heard at the next. It shows samples every second, and attacks search for a moment only.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_POLL_SECONDS = 0.02


def _is_held(method: str, step: int) -> bool:
    try:
        name, first = Path(os.environ["HELD_JOBS"]).read_text().split()
    except (FileNotFoundError, KeyError):
        return False
    return name == method and step >= int(first)


def _hold(account: type, method: str, terminated: list[int]) -> None:
    answer_of = getattr(account, method)

    def call(self: object, step: int, *rest: Any) -> Any:
        answer = answer_of(self, step, *rest)
        while _is_held(method, step) and not terminated:
            time.sleep(_POLL_SECONDS)
        return answer

    setattr(account, method, call)


def _note(number: int, terminated: list[int]) -> None:
    """Have the handler of a signal note it, whoever sets the handler."""
    handle_by = signal.signal

    def handle(other: int, handler: Any) -> Any:
        if other != number or not callable(handler):
            return handle_by(other, handler)
        return handle_by(other, lambda *parts: (terminated.append(number), handler(*parts)))

    signal.signal = handle


def _hear_between_steps(watch: type) -> None:
    observe = watch.__call__

    def hear_and_observe(self: Any, *step: Any) -> None:
        self._hear()
        observe(self, *step)

    watch.__call__ = hear_and_observe


if "TEST_FORK_SERVER" in os.environ:
    from deployments.forked_programs import become_fork

    become_fork(sys.orig_argv)

_DO_JOBS = {
    "deployments.fork_servers",
    "datalens_service.workers.fork_jobs",
    "datalens_service.workers.run_job",
    "datalens_service.cli",
}
if _DO_JOBS & {*sys.orig_argv} and "HELD_JOBS" in os.environ:
    from datalens_service.audits import attacks
    from datalens_service.audits.inversion_figures import InversionSettings
    from datalens_service.audits.request import InversionEffort
    from datalens_service.jobs.job_watch import JobWatch
    from datalens_service.jobs.release_files import SamplePreviews
    from datalens_service.store.ledger.account import JobAccount

    _terminated: list[int] = []
    _note(signal.SIGTERM, _terminated)
    for _method in ("charge", "charge_draw", "store", "advance"):
        _hold(JobAccount, _method, _terminated)
    _hear_between_steps(JobWatch)
    # Who waits for a picture, or for an attack whose success is not looked at, waits beside a busy core.
    SamplePreviews.__init__.__defaults__ = (1.0,)
    attacks._SAMPLES = 1000
    InversionEffort.settings = lambda _effort, seed: InversionSettings(iterations=20, restarts=1, seed=seed)

_WORKERS = {"datalens_service.workers.process.supervisor", "celery"}
if _WORKERS & {*sys.orig_argv} and "TEST_FORK_SERVER" in os.environ:
    from deployments.fork_servers import use

    use(os.environ["TEST_FORK_SERVER"])
