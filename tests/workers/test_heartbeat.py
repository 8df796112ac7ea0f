"""The lease lives as long as the heartbeat does."""

from __future__ import annotations

import sys
import time

import pytest

from datalens_service.store.jobs import leases
from deployments.deployment import MOMENTS, Deployment
from workers.process.heartbeat import Heartbeat
from workers.process.job_process import Exit

SECONDS = 0.6


def test_lease_outlives_its_seconds_while_the_heart_beats_and_not_after(local: Deployment) -> None:
    lease = leases.claim(local.database, local.submit(MOMENTS).id, "test", SECONDS)
    assert lease is not None

    with Heartbeat(local.database, lease):
        time.sleep(3 * SECONDS)
        assert leases.expire_leases(local.database) == ()

    time.sleep(1.5 * SECONDS)
    assert [job.id for job in leases.expire_leases(local.database)] == [lease.job_id]


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
        "from workers.process.heartbeat import Heartbeat\n"
        f"lease = Lease({job.id!r}, {lease.token}, 'test', {SECONDS}, datetime.now(UTC))\n"
        f"with Heartbeat(Database({local.database.url!r}), lease):\n"
        "    time.sleep(600)\n"
    )
    deaf = local.start(sys.executable, "-c", script)
    local.lose_lease(job)
    local.claim(job)

    assert deaf.wait(60) == Exit.FENCED


@pytest.mark.parametrize("end", ["finish", "release"])
def test_a_process_that_ends_its_own_job_lives_on(local: Deployment, end: str) -> None:
    job = local.submit(MOMENTS)
    lease = leases.claim(local.database, job.id, "test", SECONDS)
    assert lease is not None
    ending = "leases.finish(database, lease, JobState.FAILED)" if end == "finish" else "leases.release(database, lease)"
    # Several beats come between the end of the job and that of the block.
    script = (
        "import time\n"
        "from datetime import UTC, datetime, timedelta\n"
        "from datalens_service.store.database import Database\n"
        "from datalens_service.store.charge_log import ChargeLog\n"
        "from datalens_service.store.jobs import leases\n"
        "from datalens_service.store.jobs.jobs import JobState\n"
        "from datalens_service.store.jobs.leases import Lease\n"
        "from workers.process.heartbeat import Heartbeat\n"
        "from pathlib import Path\n"
        f"database = Database({local.database.url!r}, ChargeLog(Path({str(local.ledger_log)!r})))\n"
        f"lease = leases.adopt(database, {job.id!r}, {lease.token}, 'test', 3.0)\n"
        "with Heartbeat(database, lease):\n"
        f"    {ending}\n"
        "    time.sleep(2.5)\n"
    )
    assert local.start(sys.executable, "-c", script).wait(60) == 0
