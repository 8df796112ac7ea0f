"""The lease lives as long as the heartbeat does."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import pytest

from datalens_service.clock import utc_now
from datalens_service.jobs.exit_codes import Exit
from datalens_service.jobs.heartbeat import Heartbeat
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import MOMENTS, PATIENCE, Deployment

SECONDS = 0.6


def test_lease_outlives_its_seconds_while_the_heart_beats_and_not_after(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    lease = leases.claim(local.database, job.id, "test", SECONDS)
    assert lease is not None
    later = lease.until + timedelta(seconds=SECONDS)

    with Heartbeat(local.database, lease):
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
    # Busy for ever, and deaf: it neither charges nor reports.
    script = (
        "import time\n"
        "from datetime import UTC, datetime\n"
        "from datalens_service.store.database import Database\n"
        "from datalens_service.store.jobs.leases import Lease\n"
        "from datalens_service.jobs.heartbeat import Heartbeat\n"
        f"lease = Lease({job.id!r}, {lease.token}, 'test', {SECONDS}, datetime.now(UTC))\n"
        f"with Heartbeat(Database({local.database.url!r}), lease):\n"
        "    time.sleep(600)\n"
    )
    deaf = local.start(sys.executable, "-c", script)
    local.wait(lambda: local.runs_out_at(job) > lease.until)
    assert leases.claim(local.database, job.id, "other", 600, now=utc_now() + timedelta(hours=1)) is not None

    assert deaf.wait(PATIENCE) == Exit.FENCED


@pytest.mark.parametrize("end", ["finish", "release"])
def test_a_process_that_ends_its_own_job_lives_on(local: Deployment, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    deaths: list[int] = []
    monkeypatch.setattr(os, "_exit", deaths.append)
    lease = local.claim(local.submit(MOMENTS))
    heartbeat = Heartbeat(local.database, lease)
    with heartbeat:
        if end == "finish":
            leases.finish(local.database, lease, JobState.FAILED)
        else:
            leases.release(local.database, lease)
        # The beat that comes between the end of the job and that of the block.
        heartbeat._renew()
        assert heartbeat._ended.is_set()
    assert deaths == []


def test_a_process_whose_job_was_given_to_another_dies(local: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    deaths: list[int] = []
    monkeypatch.setattr(os, "_exit", deaths.append)
    job = local.submit(MOMENTS)
    lease = local.claim(job)
    assert leases.claim(local.database, job.id, "other", 600, now=utc_now() + timedelta(hours=1)) is not None
    Heartbeat(local.database, lease)._renew()
    assert deaths == [Exit.FENCED]
