"""The lease lives as long as the heartbeat does."""

from __future__ import annotations

import time

from deployment import MOMENTS, Deployment

from datalens_service.store import leases
from workers.heartbeat import Heartbeat

SECONDS = 0.6


def test_lease_outlives_its_seconds_while_the_heart_beats_and_not_after(local: Deployment) -> None:
    lease = leases.claim(local.database, local.submit(MOMENTS).id, "test", SECONDS)
    assert lease is not None

    with Heartbeat(local.database, lease):
        time.sleep(3 * SECONDS)
        assert leases.expire_leases(local.database) == ()

    time.sleep(1.5 * SECONDS)
    assert [job.id for job in leases.expire_leases(local.database)] == [lease.job_id]
