"""Loaded by every Python process of the service under test: a job process kills itself before it has its job.

The file POISONED_JOBS has the ids of such jobs; each start adds a line to the file of that name with `.starts`.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

if {"datalens_service.workers.fork_jobs", "datalens_service.workers.run_job"} & {*sys.orig_argv}:
    from datalens_service.store.jobs import leases

    _adopt = leases.adopt

    def _die(database: Any, job_id: str, *rest: Any) -> Any:
        poisoned = Path(os.environ["POISONED_JOBS"])
        if poisoned.exists() and job_id in poisoned.read_text():
            with Path(f"{poisoned}.starts").open("a") as starts:
                starts.write(f"{job_id}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return _adopt(database, job_id, *rest)

    leases.adopt = _die
