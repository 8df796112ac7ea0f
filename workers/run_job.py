"""One job in one process: `python -m workers.run_job JOB_ID`.

    claim the job ──▶ keep its lease alive ──▶ execute ──▶ exit
      │ held, paused or ended: exit              │ asked to end or to pause: give the job back
                                                 │ lease lost: the process dies at once

A fresh process per job gives all memory back at its end, GPU memory too, and can be killed without harm: what it
charged and drew is in the ledger, and the next process replays it.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

import structlog

from datalens_service import logs
from datalens_service.errors import DatalensError, NotFound, StaleLease, StoreUnavailable
from datalens_service.services.startup import check_disks, connect
from datalens_service.settings import Settings
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease
from workers.job.execute import execute
from workers.job.observer import ShutdownRequested
from workers.process.heartbeat import Heartbeat
from workers.process.job_process import Exit, announce

log = structlog.get_logger()


def run_job(settings: Settings, job_id: str, stopping: threading.Event) -> Exit:
    """Claim a job and do it.

    Args:
        settings: Of the deployment.
        job_id: Which.
        stopping: Set to have the job given back before its next step.
    """
    database = connect(settings)
    # Before the claim: waiting for room is not an attempt.
    check_disks(settings)
    owner = f"{socket.gethostname()}:{os.getpid()}"
    lease = leases.claim(database, job_id, owner, settings.lease_seconds)
    if lease is None:
        log.info("job is held or has ended, nothing to do", job_id=job_id)
        return Exit.ENDED
    announce(lease)
    with Heartbeat(database, lease):
        return _execute(database, settings, lease, stopping)


def _execute(database: Database, settings: Settings, lease: Lease, stopping: threading.Event) -> Exit:
    def stop_on_request(_phase: str, _value: int, _maximum: int) -> None:
        if stopping.is_set():
            raise ShutdownRequested

    log.info("job started", job_id=lease.job_id, lease_token=lease.token)
    try:
        job = execute(
            database,
            ArtifactStore(database, settings.data_dir, settings.artifact_url),
            settings,
            lease,
            stop_on_request,
        )
    except (ShutdownRequested, StoreUnavailable) as error:
        log.warning("job is given back", job_id=lease.job_id, reason=type(error).__name__)
        job = leases.release(database, lease)
        return Exit.PAUSED if job.state == JobState.PAUSED else Exit.GIVEN_BACK
    log.info("job ended", job_id=job.id, state=job.state.value)
    return Exit.ENDED


def main(arguments: Sequence[str] | None = None) -> Exit:
    """Run the job named on the command line; the exit status says whether anything is left to do."""
    parser = argparse.ArgumentParser(prog="python -m workers.run_job", description="Runs one job.")
    parser.add_argument("job_id", metavar="JOB_ID")
    job_id: str = parser.parse_args(arguments).job_id
    # On a crash in native code: where, without any value.
    faulthandler.enable()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    settings = Settings()
    logs.configure(settings.log_level)
    logs.bind_job(job_id)
    return _outcome(settings, job_id, stopping)


def _outcome(settings: Settings, job_id: str, stopping: threading.Event) -> Exit:
    try:
        return run_job(settings, job_id, stopping)
    except NotFound:
        log.warning("there is no such job", job_id=job_id)
        return Exit.ENDED
    except StaleLease:
        log.warning("job was taken over", job_id=job_id)
        return Exit.FENCED
    except StoreUnavailable as error:
        log.error("database unavailable", job_id=job_id, detail=error.detail)
        return Exit.GIVEN_BACK
    except Exception as error:  # noqa: BLE001 (the interpreter would print its message)
        detail = error.detail if isinstance(error, DatalensError) else None
        log.error("job process failed", job_id=job_id, detail=detail, **logs.outline(error))
        return Exit.CRASHED


if __name__ == "__main__":
    sys.exit(main())
