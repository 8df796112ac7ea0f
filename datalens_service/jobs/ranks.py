"""The ranks of a job, as it sees them: told what to share, wherever they came from.

Rank 0 does the job. The others first learn where the records are, then compute teachers until it shuts them down.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, final

import structlog

from datalens_service.base.process_group import SINGLE_PROCESS, ProcessGroup
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Upload
from datalens_service.data.intake.stored_dataset import load_dataset
from datalens_service.store.datasets.record_files import RecordStore

PRIVATE_READS = ("training",)

log = structlog.get_logger()


class SharedWork(NamedTuple):
    """The part of a job that ranks can share.

    Attributes:
        stored_at: Path of the records as every machine knows it.
    """

    job_id: str
    max_ranks: int
    stored_at: str
    records: Path
    private: Path


class Ranks(Protocol):
    """Gives a job its process group."""

    def share(self, work: SharedWork) -> AbstractContextManager[ProcessGroup]:
        """The group that computes the teachers of a job; its other ranks end with the block."""

    def shutdown(self) -> None:
        """End the other ranks, if there are any: nothing is shared."""


class ReadRecords(NamedTuple):
    """Command to read the records; comes before all others."""

    stored_at: str
    threads: int


class ReadyRanks:
    """Processes that have read the records themselves, such as those of `datalens train`."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    @contextmanager
    def share(self, work: SharedWork) -> Iterator[ProcessGroup]:
        """Yield the group of ranks, which share the records of `work`."""
        yield self._group
        self.shutdown()

    def shutdown(self) -> None:
        """End all ranks of the group."""
        self._group.shutdown()


@final
class MetRanks(ReadyRanks):
    """Processes that torchrun or a batch system started on any machines with the same settings."""

    @contextmanager
    def share(self, work: SharedWork) -> Iterator[ProcessGroup]:
        """Have them read the records; send them away if there are more of them than the job can use."""
        import torch

        if self._group.world_size > work.max_ranks:
            log.warning("job is too small for its ranks, one runs it", job_id=work.job_id, max_ranks=work.max_ranks)
            self.shutdown()
            yield SINGLE_PROCESS
            return
        size = self._group.world_size
        log.info("ranks of the job", job_id=work.job_id, ranks=size, allowed=size)
        self._group.broadcast(ReadRecords(work.stored_at, torch.get_num_threads()))
        yield self._group
        self.shutdown()


ONE_RANK = ReadyRanks(SINGLE_PROCESS)


def read_shared_records(group: ProcessGroup, settings: Settings, folder: Path) -> Upload | None:
    """Return what rank 0 says is to be read, for the other ranks; None if nothing is shared."""
    import torch

    command = group.receive()
    if command is None:
        return None
    # Results depend on the number of threads, in the last bit.
    torch.set_num_threads(command.threads)
    records = RecordStore(settings).fetch(command.stored_at, folder / "records")
    # The key that deals records to teachers comes from rank 0, with the teachers.
    return load_dataset(records)._replace(test=None)
