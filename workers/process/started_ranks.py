"""Ranks that rank 0 starts on its own machine once it knows its job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

import structlog

from datalens_service.jobs.ranks import ReadRecords, SharedWork
from datalens_service.process_group import SINGLE_PROCESS, ProcessGroup, Rendezvous, join_process_group
from datalens_service.settings import Settings
from workers.process.followers import LOOPBACK, Followers

log = structlog.get_logger()

_MEETING_POINT: Final = "ranks"


@final
class StartedRanks:
    """Processes of this machine, as many as the settings say and the job can use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @contextmanager
    def share(self, work: SharedWork) -> Iterator[ProcessGroup]:
        """Start them; alone where that is of no use.

        Raises:
            RankLost: One of them ended or was silent for too long.
        """
        count = min(self._settings.ranks, work.max_ranks)
        if self._settings.ranks > 1:
            log.info("ranks of the job", job_id=work.job_id, ranks=count, allowed=self._settings.ranks)
        if count == 1:
            yield SINGLE_PROCESS
            return
        for engine in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{engine}_SOCKET_IFNAME", LOOPBACK)
        meeting_point, timeout_seconds = work.private / _MEETING_POINT, self._settings.rank_timeout_seconds
        rendezvous = Rendezvous(0, count, 0, meeting_point.absolute().as_uri())
        with (
            Followers(work.job_id, count, meeting_point, timeout_seconds),
            _divided_threads(count) as threads,
            join_process_group(timeout_seconds, rendezvous) as group,
        ):
            group.broadcast(ReadRecords(str(work.records.absolute()), threads))
            yield group

    def shutdown(self) -> None:
        """None was started yet."""


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
