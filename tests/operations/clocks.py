"""Two workers, one with a clock that is a minute off: does either take or lose a job for it?"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import VOTES, lamps
from deployments.stack import CeleryStack

OFFSETS = (60, -60)
LEASE_SECONDS = 15
_OFF_CLOCK = Path(__file__).parent / "off_clock"
_STEPS = 400
_SPEC = {**VOTES, "method": {**VOTES["method"], "steps": _STEPS, "top_k": 4}}


def show() -> dict[str, Any]:
    """Per offset: how each job ended, under which lease, and how many workers were declared lost."""
    shown = {f"{offset:+d} s": _with_offset(offset) for offset in OFFSETS}
    return {
        "lease_seconds": LEASE_SECONDS,
        "offsets": shown,
        "kept": all(each["kept"] for each in shown.values()),
    }


def _with_offset(offset: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dlops") as folder, closing(CeleryStack(Path(folder))) as stack:
        stack.changes["DATALENS_LEASE_SECONDS"] = str(LEASE_SECONDS)
        submitted = [stack.submit(_SPEC, stack.upload(lamps(0)))]
        stack.start_worker()
        stack.wait_for_steps(submitted[0], 1)
        stack.changes |= fake_clock(offset)
        submitted.append(stack.submit(_SPEC, stack.upload(lamps(1))))
        stack.start_worker()
        ended = [stack.wait_for_end(job) for job in submitted]
        for job in ended:
            stack.assert_balanced(job)
        lost = stack.log.read_text().count("worker lost")
    return {
        "states": [job.state.value for job in ended],
        "lease_tokens": [job.lease_token for job in ended],
        "seconds": [_seconds(job.started_at, job.finished_at) for job in ended],
        "workers_declared_lost": lost,
        "kept": lost == 0 and all((job.state, job.lease_token) == (JobState.SUCCEEDED, 1) for job in ended),
    }


def fake_clock(offset: int) -> dict[str, str]:
    """Environment of Python processes whose clock is off by so many seconds."""
    path = os.pathsep.join([str(_OFF_CLOCK), *sys.path])
    return {"PYTHONPATH": path, "CLOCK_IS_OFF_BY": str(offset)}


def _seconds(began: Any, ended: Any) -> float:
    return float((ended - began).total_seconds())
