"""The processes beside rank 0 of a job that runs on one machine: rank 0 starts them, and none outlives it.

They share its session, so whoever kills the job process kills them too. Their standard input is a pipe that rank 0
holds open and never writes to: its end says that rank 0 is gone, however it went.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, final

import structlog

from datalens_service.base.process_group import (
    SINGLE_PROCESS,
    ProcessGroup,
    Rendezvous,
    join_process_group,
    meeting_url,
)
from datalens_service.base.settings import Settings
from datalens_service.jobs.failures import Exit
from datalens_service.jobs.ranks import ReadRecords, SharedWork

log = structlog.get_logger()

LOOPBACK: Final = "lo0" if sys.platform == "darwin" else "lo"
"""Interface of this machine alone: what ranks say to each other is private and not encrypted."""

_GRACE_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.2
_PREFIX: Final = "DATALENS_"


class Followers:
    """Ranks 1, 2, … of a job, while the block runs.

    A lost one ends this process too. Rank 0 learns of it in the next sum over all ranks; if that takes too long,
    the process ends at once, as one that was killed.

    Args:
        meeting_point: Path of a file that does not exist yet; private.
    """

    def __init__(self, job_id: str, count: int, meeting_point: Path, timeout_seconds: int) -> None:
        self._job_id = job_id
        self._command = [sys.executable, "-P", "-m", "datalens_service.workers.follow_rank", job_id]
        self._command += ["--world-size", str(count), "--meeting-point", str(meeting_point)]
        self._command += ["--timeout-seconds", str(timeout_seconds)]
        self._ranks = range(1, count)
        self._folder = meeting_point.parent
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="followers", daemon=True)

    def __enter__(self) -> None:
        for rank in self._ranks:
            self._processes.append(self._start(rank))
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS if error is None else _POLL_SECONDS)
            process.kill()
            process.wait()

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        # Standard output is where rank 0 announces its lease.
        return subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [*self._command, "--rank", str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # Files that they leave when they are killed go with the folder of the lease.
            env={**_environment(), "TMPDIR": str(self._folder)},
        )

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            if any(process.poll() for process in self._processes):
                break
        if self._ended.wait(_GRACE_SECONDS):
            return
        log.error("rank lost, process ends", job_id=self._job_id)
        os._exit(Exit.CRASHED)


def _environment() -> dict[str, str]:
    """Return an environment without settings: a process that has no account needs no address of one."""
    variables = {name: value for name, value in os.environ.items() if not name.upper().startswith(_PREFIX)}
    level = os.environ.get(f"{_PREFIX}LOG_LEVEL")
    return variables if level is None else {**variables, f"{_PREFIX}LOG_LEVEL": level}


_MEETING_POINT: Final = "ranks"


@final
class StartedRanks:
    """Processes of this machine, as many as the settings say and the job can use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @contextmanager
    def share(self, work: SharedWork) -> Iterator[ProcessGroup]:
        """Start them; alone where that is of no use."""
        count = min(self._settings.ranks, work.max_ranks)
        if self._settings.ranks > 1:
            log.info("ranks of the job", job_id=work.job_id, ranks=count, allowed=self._settings.ranks)
        if count == 1:
            yield SINGLE_PROCESS
            return
        for engine in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{engine}_SOCKET_IFNAME", LOOPBACK)
        meeting_point, timeout_seconds = work.private / _MEETING_POINT, self._settings.rank_timeout_seconds
        rendezvous = Rendezvous(0, count, 0, meeting_url(meeting_point))
        with (
            Followers(work.job_id, count, meeting_point, timeout_seconds),
            _divided_threads(count) as threads,
            join_process_group(timeout_seconds, rendezvous) as group,
        ):
            group.broadcast(ReadRecords(str(work.records.absolute()), threads))
            yield group

    def shutdown(self) -> None:
        """Do nothing, as none was started yet."""


@contextmanager
def _divided_threads(count: int) -> Iterator[int]:
    """Ranks of one machine share its processors, unless OMP_NUM_THREADS says how many threads each has."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(before if "OMP_NUM_THREADS" in os.environ else max(1, before // count))
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
