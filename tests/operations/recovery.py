"""A worker and its job process are killed while twelve jobs wait behind theirs: when does the job run again?"""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import Job, JobState
from deployments.deployment import QUICK, VOTES, lamps
from deployments.stack import CeleryStack

LEASE_SECONDS = 15
WAITING = 12
_LONG = {**VOTES, "method": {**VOTES["method"], "steps": 3000, "top_k": 2}}


def show() -> dict[str, Any]:
    """Seconds from the kill until the job runs again, and how many jobs were behind it then."""
    with tempfile.TemporaryDirectory(prefix="dlops") as folder, closing(CeleryStack(Path(folder))) as stack:
        stack.changes["DATALENS_LEASE_SECONDS"] = str(LEASE_SECONDS)
        return _measured(stack)


def _measured(stack: CeleryStack) -> dict[str, Any]:
    interrupted = stack.submit(_LONG, stack.upload(lamps(0)))
    lost = stack.start_worker()
    stack.wait_for_steps(interrupted, 1)
    stack.start_worker()
    later = _submit_later(stack)
    stack.wait(lambda: stack.job(later[0]).state != JobState.QUEUED)
    killed = time.monotonic()
    stack.kill_worker(lost)
    stack.kill_job_process(interrupted)
    stack.wait(lambda: stack.job(interrupted).lease_token > 1)
    seconds = time.monotonic() - killed
    behind = len(leases.next_queued(stack.database, limit=100))
    jobs.request_cancel(stack.database, interrupted.id)
    ended = [stack.wait_for_end(job) for job in (interrupted, *later)]
    for job in ended:
        stack.assert_balanced(job)
    return {
        "lease_seconds": LEASE_SECONDS,
        "jobs_submitted_later": WAITING,
        "jobs_still_behind_it": behind,
        "seconds_until_it_ran_again": round(seconds, 1),
        "later_jobs_succeeded": sum(job.state == JobState.SUCCEEDED for job in ended[1:]),
        "kept": seconds <= 2 * LEASE_SECONDS and behind > 0,
    }


def _submit_later(stack: CeleryStack) -> list[Job]:
    later = [stack.submit(QUICK, stack.upload(lamps(seed))) for seed in range(1, WAITING + 1)]
    for job in later:
        stack.deliver(job.id)
    return later
