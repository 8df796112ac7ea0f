"""Runs one rank above 0 of a job on this machine; rank 0 starts it: `python -m datalens_service.workers.follow_rank`.

It reads records and computes teachers. It knows no database, holds no lease, charges nothing and draws no noise.
"""

import argparse
import faulthandler
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import structlog

from datalens_service.base import logs
from datalens_service.base.errors import DatalensError
from datalens_service.base.process_group import ProcessGroup, Rendezvous, join_process_group, meeting_url
from datalens_service.base.settings import Settings
from datalens_service.jobs.failures import Exit
from datalens_service.jobs.ranks import read_shared_records

log = structlog.get_logger()


def follow(settings: Settings, timeout_seconds: int, rendezvous: Rendezvous) -> Exit:
    """Obey rank 0 until it shuts the group down; ENDED, or CRASHED if this rank or another one was lost.

    Args:
        settings: Folders of records, if rank 0 is on another machine.
    """
    # The job is given back by rank 0, which then shuts the group down.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with join_process_group(timeout_seconds, rendezvous) as group:
            _serve(settings, group)
    except Exception as error:  # noqa: BLE001 (the interpreter would print its message)
        detail = error.detail if isinstance(error, DatalensError) else None
        log.error("rank failed", rank=rendezvous.rank, detail=detail, **logs.outline(error))
        return Exit.CRASHED
    return Exit.ENDED


def _serve(settings: Settings, group: ProcessGroup) -> None:
    with tempfile.TemporaryDirectory(prefix="datalens-rank-") as folder:
        upload = read_shared_records(group, settings, Path(folder))
        if upload is not None:
            from datalens_service.mechanisms.private_shards import run_follower

            run_follower(group, upload, Path(folder))


def main(arguments: Sequence[str] | None = None) -> Exit:
    """Run the rank that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m datalens_service.workers.follow_rank", description="Runs one rank of a job."
    )
    parser.add_argument("job_id", metavar="JOB_ID")
    for name in ("rank", "world-size", "timeout-seconds"):
        parser.add_argument(f"--{name}", type=int, required=True, metavar="NUMBER")
    parser.add_argument("--meeting-point", type=Path, required=True, metavar="PATH")
    parsed = parser.parse_args(arguments)
    faulthandler.enable()
    threading.Thread(target=_end_with_leader, name="leader", daemon=True).start()
    settings = Settings()
    logs.configure(settings.log_level)
    logs.bind_job(parsed.job_id)
    url = meeting_url(parsed.meeting_point)
    return follow(settings, parsed.timeout_seconds, Rendezvous(parsed.rank, parsed.world_size, parsed.rank, url))


def _end_with_leader() -> None:
    """Standard input ends when rank 0 is gone; nothing is ever written to it."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(Exit.CRASHED)


if __name__ == "__main__":
    sys.exit(main())
