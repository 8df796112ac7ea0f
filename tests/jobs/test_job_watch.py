"""A lease lives as long as its watch, and a request takes effect within ten seconds, also where no step comes."""

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from datalens_service.base.clock import utc_now
from datalens_service.base.errors import StaleLease
from datalens_service.base.progress import Phase
from datalens_service.jobs import job_watch
from datalens_service.jobs.failures import Exit
from datalens_service.jobs.job_watch import GRACE_SECONDS, JobWatch
from datalens_service.jobs.private_folder import PrivateFolder
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease, Requests
from datalens_service.store.ledger import aggregates
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.ledger.aggregates import is_draw_pending
from deployments.deployment import MOMENTS, PATIENCE, Deployment

# A job process in which one function sleeps for an hour.
SLOWED = """
import importlib, sys, time
module, name, job = sys.argv[1:]
setattr(importlib.import_module(module), name, lambda *_, **__: time.sleep(3600))
from datalens_service.jobs import job_watch
job_watch.GRACE_SECONDS = 1.0
from datalens_service.workers.run_job import main
sys.exit(main([job]))
"""
SECONDS = 0.6
# A process that is busy for ever, and deaf: it neither charges nor reports.
DEAF = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from datalens_service.jobs.job_watch import JobWatch
from datalens_service.jobs.private_folder import PrivateFolder
from datalens_service.store.database import Database
from datalens_service.store.jobs.leases import Lease
url, folder, job, token, seconds = sys.argv[1:]
lease = Lease(job, int(token), "test", float(seconds), datetime.now(UTC))
with JobWatch(Database(url), PrivateFolder(Path(folder), lease), lease):
    time.sleep(600)
"""


def watch_of(local: Deployment, lease: Lease) -> JobWatch:
    private = PrivateFolder(local.folder, lease)
    private.open()
    return JobWatch(local.database, private, lease)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codes with which the process would have ended; the thread that ends it does end."""
    codes: list[int] = []

    def record(code: int) -> None:
        codes.append(code)
        raise StaleLease("")

    monkeypatch.setattr(os, "_exit", record)
    monkeypatch.setattr(job_watch, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(job_watch, "GRACE_SECONDS", 0.0)
    return codes


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows by one whenever the thread has looked and the process goes on."""
    look, counted = JobWatch._look, []

    def count(watch: JobWatch) -> None:
        look(watch)
        counted.append(None)

    monkeypatch.setattr(JobWatch, "_look", count)
    return counted


Watched = Callable[[tuple[Phase, int, int], str], JobState]


@pytest.fixture
def watched(local: Deployment, exits: list[int], looks: list[None], monkeypatch: pytest.MonkeyPatch) -> Watched:
    """State of a job that is in a phase and hears nothing, after a request that the thread had the time to enforce."""

    monkeypatch.setattr(job_watch, "GRACE_SECONDS", 0.05)

    def watch(phase: tuple[Phase, int, int], request: str) -> JobState:
        job = local.submit(MOMENTS)
        lease = local.claim(job)
        with watch_of(local, lease) as observe:
            observe(*phase)
            if phase[0] in (Phase.EVALUATING, Phase.REPORTING):
                leases.mark_released(local.database, lease, "generator")
            ask = jobs.request_cancel if request == "cancel" else jobs.request_pause
            ask(local.database, job.id)
            # Of these looks, the last comes more than the grace period after the first.
            enough = len(looks) + 10
            local.wait(lambda: local.job(job).state != JobState.RUNNING or len(looks) >= enough)
        return local.job(job).state

    return watch


@pytest.mark.parametrize("phase", list(Phase)[:-1])
def test_a_pause_takes_effect_in_every_phase(watched: Watched, exits: list[int], phase: Phase) -> None:
    assert watched((phase, 0, 3), "pause") == JobState.PAUSED
    assert exits == [Exit.PAUSED]


@pytest.mark.parametrize(
    ("phase", "state"), [(Phase.TRAINING, JobState.CANCELLED), (Phase.EVALUATING, JobState.SUCCEEDED)]
)
def test_a_cancelled_job_ends_and_keeps_what_it_released(
    local: Deployment, watched: Watched, exits: list[int], phase: Phase, state: JobState
) -> None:
    assert watched((phase, 0, 3), "cancel") == state
    assert exits == [Exit.ENDED]
    assert local.private_folders() == []


@pytest.mark.parametrize(
    "phase",
    [
        (Phase.TRAINING, 3, 3),
        (Phase.FITTING, 0, 1),
        (Phase.DRAWING, 0, 2),
        (Phase.PACKAGING, 1, 3),
        (Phase.REPORTING, 1, 3),
    ],
)
def test_files_that_are_paid_for_are_written_to_the_end(
    watched: Watched, exits: list[int], phase: tuple[Phase, int, int]
) -> None:
    assert watched(phase, "cancel") == JobState.RUNNING
    assert exits == []


def test_files_that_are_begun_between_the_look_and_the_end_are_written(
    local: Deployment, exits: list[int], looks: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)

    def hear_while_the_job_goes_on(database: Database, job_id: str) -> Requests:
        heard = read(database, job_id)
        leases.progress(database, lease, Phase.PACKAGING, 0, 3)
        return heard

    read = leases.read_requests
    monkeypatch.setattr(leases, "read_requests", hear_while_the_job_goes_on)
    with watch_of(local, lease) as observe:
        observe(Phase.TRAINING, 0, 3)
        jobs.request_cancel(local.database, job.id)
        enough = len(looks) + 2
        local.wait(lambda: len(looks) >= enough)
    assert exits == []
    assert local.job(job).state == JobState.RUNNING


def test_a_step_that_was_charged_is_drawn_before_the_process_ends(
    local: Deployment, exits: list[int], looks: list[None]
) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)
    account = JobAccount(local.database, job.id, lease.token)
    account.charge(0, "counts", 1)
    with watch_of(local, lease) as observe:
        observe(Phase.TRAINING, 0, 3)
        jobs.request_pause(local.database, job.id)
        enough = len(looks) + 3
        local.wait(lambda: len(looks) >= enough)
        assert exits == []
        account.store(0, np.ones(3, dtype=np.int64))
        local.wait(lambda: local.job(job).state == JobState.PAUSED)
    assert exits == [Exit.PAUSED]


def test_a_cancelled_job_does_not_wait_for_the_sum_of_a_step_that_was_charged(
    local: Deployment, exits: list[int]
) -> None:
    """Nobody would use it."""
    job = local.submit(MOMENTS)
    lease = local.claim(job)
    JobAccount(local.database, job.id, lease.token).charge(0, "counts", 1)
    with watch_of(local, lease) as observe:
        observe(Phase.TRAINING, 0, 3)
        jobs.request_cancel(local.database, job.id)
        local.wait(lambda: exits != [])
    assert (local.job(job).state, local.job(job).charged_units) == (JobState.CANCELLED, 1)


def test_no_step_is_charged_between_the_look_and_the_end(
    local: Deployment, exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = local.submit(MOMENTS)
    lease = local.claim(job)
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
    with watch_of(local, lease) as observe:
        observe(Phase.TRAINING, 0, 3)
        jobs.request_pause(local.database, job.id)
        local.wait(lambda: exits != [])
    training.join()
    assert len(refused) == 1
    assert exits == [Exit.PAUSED]
    assert (local.job(job).state, local.job(job).charged_units) == (JobState.PAUSED, 0)


def test_a_job_that_hears_the_request_itself_is_left_alone(
    local: Deployment, exits: list[int], looks: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "GRACE_SECONDS", 60.0)
    lease = local.claim(job := local.submit(MOMENTS))
    with watch_of(local, lease):
        jobs.request_pause(local.database, job.id)
        leases.give_back(local.database, lease)
        enough = len(looks) + 2
        local.wait(lambda: len(looks) >= enough)
    assert exits == []
    assert local.job(job).state == JobState.PAUSED


def test_a_process_that_packs_for_an_hour_pauses_within_ten_seconds(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    slowed = ("datalens_service.jobs.release_files", "_pack_images", job.id)
    worker = local.start("-c", SLOWED, *slowed)
    local.wait(lambda: local.job(job).progress.phase == "drawing")
    jobs.request_pause(local.database, job.id)
    local.wait(lambda: local.job(job).state == JobState.PAUSED)
    # The request is seen at the next look, and the period over at the first look after it.
    assert GRACE_SECONDS + 2 * job_watch._LOOK_SECONDS < 10
    assert worker.wait() == Exit.PAUSED
    # What it charged is on the books once, and the next process replays it.
    local.verified(job)
    assert local.job(job).charged_units == job.reserved_units


def test_lease_outlives_its_seconds_while_it_is_watched_and_not_after(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    lease = leases.claim(local.database, job.id, "test", SECONDS)
    assert lease is not None
    later = lease.until + timedelta(seconds=SECONDS)

    with watch_of(local, lease):
        local.wait(lambda: local.runs_out_at(job) > later)
        assert leases.expire_leases(local.database, now=later) == ()

    last = local.runs_out_at(job)
    assert leases.expire_leases(local.database, now=last) == ()
    expired = leases.expire_leases(local.database, now=last + timedelta(seconds=1))
    assert [one.id for one in expired] == [job.id]


def test_process_dies_with_its_lease_whatever_it_is_doing(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    lease = leases.claim(local.database, job.id, "test", SECONDS)
    assert lease is not None
    arguments = (local.database.url, str(local.folder), job.id, str(lease.token), str(SECONDS))
    deaf = local.start("-c", DEAF, *arguments)
    local.wait(lambda: local.runs_out_at(job) > lease.until)
    assert leases.claim(local.database, job.id, "other", 600, now=utc_now() + timedelta(hours=1)) is not None

    assert deaf.wait(PATIENCE) == Exit.FENCED


@pytest.mark.parametrize("end", ["finish", "release"])
def test_a_process_that_ends_its_own_job_lives_on(local: Deployment, exits: list[int], end: str) -> None:
    lease = local.claim(local.submit(MOMENTS))
    with watch_of(local, lease) as watch:
        if end == "finish":
            leases.finish(local.database, lease, JobState.FAILED)
        else:
            leases.give_back(local.database, lease)
        # The renewal that comes between the end of the job and that of the block.
        watch._next_renewal = 0.0
        local.wait(watch._ended.is_set)
    assert exits == []
