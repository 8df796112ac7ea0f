"""Runs one job in one process: `python -m datalens_service.workers.run_job [--token TOKEN] [JOB_ID]`.

    adopt the lease that was claimed ──▶ keep it alive ──▶ execute ──▶ exit
    for this process, or claim the job    │ asked to end or to pause: give the job back
      │ held, paused or ended: exit       │ a request not heard for seconds: the same without unwinding
                                          │ lease lost: the process dies at once

A fresh process per job gives all memory back at its end, GPU memory too, and can be killed without harm: what it
charged and drew is in the ledger, and the next process replays it.

Where torchrun or a batch system started several of them that know of each other, they are the ranks of one job: the
first does the job, the others compute teachers for it. Without an id the job is the next one of the queue.
"""

import argparse
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from datalens_service.adapters.startup import check_disks, connect
from datalens_service.base import logs
from datalens_service.base.errors import DatalensError, GpuMemoryTaken, NotFound, RankLost, StaleLease, StoreUnavailable
from datalens_service.base.process_group import Rendezvous, join_process_group, read_rendezvous
from datalens_service.base.progress import Phase
from datalens_service.base.settings import Settings
from datalens_service.jobs.execute import execute
from datalens_service.jobs.failures import Exit
from datalens_service.jobs.job_watch import ShutdownRequested
from datalens_service.jobs.ranks import MetRanks, Ranks
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.workers.follow_rank import follow
from datalens_service.workers.process.job_process import announce
from datalens_service.workers.process.ranks import StartedRanks
from datalens_service.workers.process.recover_jobs import Recovery

log = structlog.get_logger()

_TURN_SECONDS = 2.0


def run_job(
    settings: Settings,
    job_id: str | None,
    stopping: threading.Event,
    token: int | None = None,
    ranks: Ranks | None = None,
) -> Exit:
    """Do a job under the lease that was claimed for it, or under one that is claimed now.

    Args:
        job_id: Id of the job; None: the next one of the queue of the settings.
        ranks: Processes that may share its teachers; None starts those that the settings ask for.
    """
    database = connect(settings)
    # Before the lease is this process's: waiting for room is not an attempt.
    check_disks(settings)
    lease = _take(database, settings, job_id, token, stopping)
    if lease is None:
        log.info("job is held or has ended, nothing to do", job_id=job_id)
        return Exit.ENDED
    logs.bind_job(lease.job_id)
    announce(lease)
    ended = _execute(database, settings, lease, stopping, ranks or StartedRanks(settings))
    if ended == Exit.CRASHED:
        # It is known that nobody renews it any more.
        with suppress(StaleLease, StoreUnavailable):
            leases.lose(database, lease)
    return ended


def _take(
    database: Database, settings: Settings, job_id: str | None, token: int | None, stopping: threading.Event
) -> Lease | None:
    owner = f"{socket.gethostname()}:{os.getpid()}"
    if job_id is None:
        return _take_next(database, settings, owner, stopping)
    if token is not None:
        return leases.adopt(database, job_id, token, owner, settings.lease_seconds)
    return leases.claim(database, job_id, owner, settings.lease_seconds)


def _take_next(database: Database, settings: Settings, owner: str, stopping: threading.Event) -> Lease | None:
    """The next job of the queue; waits for two leases, so that it sees the job of a worker that was just lost."""
    until = time.monotonic() + 2 * settings.lease_seconds
    recovery = Recovery(database, settings)
    while not stopping.is_set():
        recovery.run()
        lease = leases.claim_next(database, owner, settings.lease_seconds, queue=settings.queue)
        if lease is not None or time.monotonic() >= until:
            return lease
        stopping.wait(_TURN_SECONDS)
    return None


def _execute(database: Database, settings: Settings, lease: Lease, stopping: threading.Event, ranks: Ranks) -> Exit:
    def stop_on_request(_phase: Phase, _value: int, _maximum: int) -> None:
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
            ranks,
        )
    except RankLost:
        log.error("rank lost, job will be resumed", job_id=lease.job_id)
        return Exit.CRASHED
    except (ShutdownRequested, StoreUnavailable, GpuMemoryTaken) as error:
        log.warning("job is given back", job_id=lease.job_id, reason=type(error).__name__)
        job = leases.give_back(database, lease)
        return Exit.PAUSED if job.state == JobState.PAUSED else Exit.GIVEN_BACK
    log.info("job ended", job_id=job.id, state=job.state.value)
    return Exit.ENDED


def main(arguments: Sequence[str] | None = None) -> Exit:
    """Run the job named on the command line; the exit status says whether anything is left to do."""
    parser = argparse.ArgumentParser(prog="python -m datalens_service.workers.run_job", description="Runs one job.")
    parser.add_argument("job_id", metavar="JOB_ID", nargs="?", help="default: the next one of DATALENS_QUEUE")
    parser.add_argument("--token", type=int, metavar="TOKEN", help="of the lease claimed for this process")
    parsed = parser.parse_args(arguments)
    job_id: str | None = parsed.job_id
    # On a crash in native code: where, without any value.
    faulthandler.enable()
    settings = Settings()
    logs.configure(settings.log_level)
    if job_id is not None:
        logs.bind_job(job_id)
    # A process that a worker started is rank 0 of those that it starts itself.
    rendezvous = read_rendezvous() if parsed.token is None else None
    if rendezvous is not None and rendezvous.rank:
        return follow(settings, settings.rank_timeout_seconds, rendezvous)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    return _outcome(job_id, lambda: _run_as_leader(settings, job_id, stopping, parsed.token, rendezvous))


def _run_as_leader(
    settings: Settings, job_id: str | None, stopping: threading.Event, token: int | None, rendezvous: Rendezvous | None
) -> Exit:
    if rendezvous is None:
        return run_job(settings, job_id, stopping, token)
    # First: no lease is held while others are waited for.
    with join_process_group(settings.rank_timeout_seconds, rendezvous) as group:
        return run_job(settings, job_id, stopping, token, MetRanks(group))


def _outcome(job_id: str | None, run: Callable[[], Exit]) -> Exit:
    try:
        return run()
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
