"""A request to pause or cancel takes effect within ten seconds, also where a job does not look for minutes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from datalens_service.errors import StaleLease
from datalens_service.jobs import request_watch
from datalens_service.jobs.exit_codes import Exit
from datalens_service.jobs.request_watch import GRACE_SECONDS, RequestWatch
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases, pausing
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import aggregates
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.ledger.aggregates import is_draw_pending
from deployments.deployment import MOMENTS, Deployment

# A job process in which one function sleeps for an hour.
SLOWED = """
import importlib, sys, time
module, name, job = sys.argv[1:]
setattr(importlib.import_module(module), name, lambda *_, **__: time.sleep(3600))
import workers.run_job
from datalens_service.jobs.request_watch import RequestWatch
workers.run_job.RequestWatch = lambda *parts: RequestWatch(*parts, grace=1.0)
from workers.run_job import main
sys.exit(main([job]))
"""


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codes with which the process would have ended; the thread that ends it does end."""
    codes: list[int] = []

    def record(code: int) -> None:
        codes.append(code)
        raise StaleLease("")

    monkeypatch.setattr(os, "_exit", record)
    monkeypatch.setattr(request_watch, "_LOOK_SECONDS", 0.02)
    return codes


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows by one whenever the thread has looked and the process goes on."""
    look, counted = RequestWatch._look, []

    def count(watch: RequestWatch) -> None:
        look(watch)
        counted.append(None)

    monkeypatch.setattr(RequestWatch, "_look", count)
    return counted


Watched = Callable[[tuple[str, int, int], str], JobState]


@pytest.fixture
def watched(local: Deployment, exits: list[int], looks: list[None]) -> Watched:
    """State of a job that is in a phase and hears nothing, after a request that the thread had the time to enforce."""

    def watch(phase: tuple[str, int, int], request: str) -> JobState:
        job = local.submit(MOMENTS)
        lease = local.claim(job)
        leases.progress(local.database, lease, *phase)
        if phase[0] in ("evaluating", "reporting"):
            leases.mark_released(local.database, lease, "generator")
        with RequestWatch(local.database, local.settings, lease, grace=0.05):
            ask = jobs.request_cancel if request == "cancel" else pausing.request_pause
            ask(local.database, job.id)
            # Of these looks, the last comes more than the grace period after the first.
            enough = len(looks) + 10
            local.wait(lambda: local.job(job).state != JobState.RUNNING or len(looks) >= enough)
        return local.job(job).state

    return watch


@pytest.mark.parametrize("phase", ["training", "packaging", "evaluating", "reporting"])
def test_a_pause_takes_effect_in_every_phase(watched: Watched, exits: list[int], phase: str) -> None:
    assert watched((phase, 0, 3), "pause") == JobState.PAUSED
    assert exits == [Exit.PAUSED]


@pytest.mark.parametrize(("phase", "state"), [("training", JobState.CANCELLED), ("evaluating", JobState.SUCCEEDED)])
def test_a_cancelled_job_ends_and_keeps_what_it_released(
    local: Deployment, watched: Watched, exits: list[int], phase: str, state: JobState
) -> None:
    assert watched((phase, 0, 3), "cancel") == state
    assert exits == [Exit.ENDED]
    assert local.private_folders() == []


@pytest.mark.parametrize("phase", [("training", 3, 3), ("packaging", 1, 3), ("reporting", 1, 3)])
def test_files_that_are_paid_for_are_written_to_the_end(
    watched: Watched, exits: list[int], phase: tuple[str, int, int]
) -> None:
    assert watched(phase, "cancel") == JobState.RUNNING
    assert exits == []


def test_files_that_are_begun_between_the_look_and_the_end_are_written(
    local: Deployment, exits: list[int], looks: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)
    leases.progress(local.database, lease, "training", 0, 3)
    jobs.request_cancel(local.database, job.id)

    def look_while_the_job_goes_on(database: Database, job_id: str) -> Job:
        seen = read(database, job_id)
        leases.progress(database, lease, "packaging", 0, 3)
        return seen

    read = jobs.get
    monkeypatch.setattr(jobs, "get", look_while_the_job_goes_on)
    with RequestWatch(local.database, local.settings, lease, grace=0.0):
        local.wait(lambda: len(looks) > 0)
    assert exits == []
    assert read(local.database, job.id).state == JobState.RUNNING


def test_a_step_that_was_charged_is_drawn_before_the_process_ends(
    local: Deployment, exits: list[int], looks: list[None]
) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)
    leases.progress(local.database, lease, "training", 0, 3)
    account = JobAccount(local.database, job.id, lease.token)
    account.charge(0, "counts", 1)
    with RequestWatch(local.database, local.settings, lease, grace=0.0):
        pausing.request_pause(local.database, job.id)
        enough = len(looks) + 3
        local.wait(lambda: len(looks) >= enough)
        assert exits == []
        account.store(0, np.ones(3, dtype=np.int64))
        local.wait(lambda: local.job(job).state == JobState.PAUSED)
    assert exits == [Exit.PAUSED]


def test_no_step_is_charged_between_the_look_and_the_end(
    local: Deployment, exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)
    leases.progress(local.database, lease, "training", 0, 3)
    refused: list[StaleLease] = []

    def charge() -> None:
        try:
            JobAccount(local.database, job.id, lease.token).charge(0, "counts", 1)
        except StaleLease as error:
            refused.append(error)

    training = threading.Thread(target=charge)

    def look_while_the_job_charges(*parts: Any) -> bool:
        pending = is_draw_pending(*parts)
        training.start()
        # Nothing stops a charge that is not locked out, and one that is locked out waits for longer.
        training.join(1)
        return pending

    monkeypatch.setattr(aggregates, "is_draw_pending", look_while_the_job_charges)
    with RequestWatch(local.database, local.settings, lease, grace=0.0):
        pausing.request_pause(local.database, job.id)
        local.wait(lambda: exits != [])
    training.join()
    assert len(refused) == 1
    assert exits == [Exit.PAUSED]
    assert (local.job(job).state, local.job(job).charged_units) == (JobState.PAUSED, 0)


def test_a_job_that_hears_the_request_itself_is_left_alone(
    local: Deployment, exits: list[int], looks: list[None]
) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)
    with RequestWatch(local.database, local.settings, lease, grace=60):
        pausing.request_pause(local.database, job.id)
        leases.release(local.database, lease)
        enough = len(looks) + 2
        local.wait(lambda: len(looks) >= enough)
    assert exits == []
    assert local.job(job).state == JobState.PAUSED


def test_a_process_that_packs_for_an_hour_pauses_within_ten_seconds(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    slowed = ("datalens_service.jobs.release_files", "_pack_images", job.id)
    worker = local.start(sys.executable, "-c", SLOWED, *slowed)
    local.wait(lambda: local.job(job).progress.phase == "packaging")
    pausing.request_pause(local.database, job.id)
    local.wait(lambda: local.job(job).state == JobState.PAUSED)
    # The request is seen at the next look, and the period over at the first look after it.
    assert GRACE_SECONDS + 2 * request_watch._LOOK_SECONDS < 10
    assert worker.wait() == Exit.PAUSED
    # What it charged is on the books once, and the next process replays it.
    local.verified(job)
    assert local.job(job).charged_units == job.reserved_units
