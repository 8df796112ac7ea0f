"""The processes that share the teachers of one job, wherever they were started.

Rank 0 leads. It alone has an account, a source of noise and a student; the others hold teachers, follow its commands,
and add their votes up with its own before a mechanism draws noise. An error in one rank ends all: none
waits for another for longer than the timeout.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, final

from datalens_service.base.errors import InvalidSpec, RankLost, WorkerUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Part = TypeVar("Part")

_MEETING_POINT: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables by which torch lets processes meet; `torchrun` sets them, and so may a batch system."""


class Rendezvous(NamedTuple):
    """The point at which one process meets the others.

    Attributes:
        local_rank: Its number among those of its machine, and that of its graphics processor.
        url: "env://", or "file://" and the path of a file that does not exist yet.
    """

    rank: int
    world_size: int
    local_rank: int
    url: str


def read_rendezvous() -> Rendezvous | None:
    """Read the variables that torchrun or a batch system sets; None: this process is alone."""
    if not all(os.environ.get(name) for name in _MEETING_POINT) or os.environ["WORLD_SIZE"] == "1":
        return None
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return Rendezvous(rank, world_size, int(os.environ.get("LOCAL_RANK", "0")), "env://")


class ProcessGroup:
    """Single-process group: every collective is a no-op."""

    rank: int = 0
    """Number of this process; 0 leads."""
    world_size: int = 1
    """Number of processes in the group."""

    def share(self, parts: Sequence[Part]) -> list[Part]:
        """Return the parts of this rank, one after another; public.

        Raises:
            InvalidSpec: There are more ranks than parts.
        """
        if self.world_size > len(parts):
            raise InvalidSpec(f"So few teachers can be shared by at most {len(parts)} ranks: start fewer.")
        first, stop = (len(parts) * rank // self.world_size for rank in (self.rank, self.rank + 1))
        return list(parts[first:stop])

    def broadcast(self, command: object) -> None:
        """Send the next command from rank 0 to all others."""

    def receive(self) -> Any:
        """Return the next command of rank 0; None: there are no more."""

    def all_reduce(self, sums: Integers) -> Integers:
        """Return the exact sum over all ranks; every rank calls it with an array of the same shape."""
        return sums

    def shutdown(self) -> None:
        """End the other ranks; called by rank 0."""

    def local_device(self, device: str) -> str:
        """Return the device of this rank when the job runs on `device`."""
        return device


@final
class TorchProcessGroup(ProcessGroup):
    """The default group of `torch.distributed`.

    Commands go over gloo, sums over NCCL where teachers are on graphics processors. The traffic is
    private and not encrypted: images of the student, votes without noise, and the key that assigns records to shards.
    """

    def __init__(self, local_rank: int) -> None:
        import torch.distributed

        self.rank, self.world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self._local_rank = local_rank
        self._device = "cpu"
        self._shut_down = False

    def broadcast(self, command: object) -> None:
        self._broadcast([command])

    def receive(self) -> Any:
        received: list[object] = [None]
        self._broadcast(received)
        return received[0]

    def all_reduce(self, sums: Integers) -> Integers:
        import torch.distributed

        total = torch.tensor(sums, device=self._device)
        with _raise_rank_lost():
            torch.distributed.all_reduce(total)
        return total.cpu().numpy()

    def shutdown(self) -> None:
        if self.rank == 0 and not self._shut_down:
            self._shut_down = True
            self.broadcast(None)

    def local_device(self, device: str) -> str:
        """Assign a graphics processor of its own to every rank of a machine.

        Raises:
            WorkerUnavailable: This machine has fewer of them than ranks.
        """
        import torch

        if torch.device(device).type == "cuda":
            if self._local_rank >= torch.cuda.device_count():
                raise WorkerUnavailable("A machine has fewer GPUs than ranks: start as many ranks as it has GPUs.")
            torch.cuda.set_device(self._local_rank)
            device = f"cuda:{self._local_rank}"
        self._device = device
        return device

    def _broadcast(self, objects: list[object]) -> None:
        import torch.distributed

        with _raise_rank_lost():
            torch.distributed.broadcast_object_list(objects, src=0, device=torch.device("cpu"))


SINGLE_PROCESS = ProcessGroup()


@contextmanager
def join_process_group(timeout_seconds: int, rendezvous: Rendezvous | None) -> Iterator[ProcessGroup]:
    """Join the processes that meet at a rendezvous; without one, yield the group of this process alone.

    Args:
        timeout_seconds: Longest time for which a rank waits for another.

    Raises:
        RankLost: Not all came.
    """
    if rendezvous is None:
        yield SINGLE_PROCESS
        return
    import torch.distributed

    group = _meet(timeout_seconds, rendezvous)
    try:
        yield group
    except RankLost:
        # The group is broken, and to leave it in order would be to wait for it: its connections end with the process.
        raise
    except BaseException:
        with suppress(RankLost):
            group.shutdown()
        raise
    group.shutdown()
    torch.distributed.destroy_process_group()


def meeting_url(path: Path) -> str:
    """Return the address of a file as torch reads it: unescaped, where a URI would escape spaces and umlauts."""
    return f"file://{path.absolute()}"


def _meet(timeout_seconds: int, rendezvous: Rendezvous) -> TorchProcessGroup:
    import torch.distributed

    with _raise_rank_lost():
        torch.distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            init_method=rendezvous.url,
            rank=rendezvous.rank,
            world_size=rendezvous.world_size,
            timeout=timedelta(seconds=timeout_seconds),
        )
    return TorchProcessGroup(rendezvous.local_rank)


@contextmanager
def _raise_rank_lost() -> Iterator[None]:
    """Turn torch's `RuntimeError` for a lost connection or a timeout, whose words differ by backend, into one error."""
    try:
        yield
    except RuntimeError as error:
        raise RankLost("A rank ended or was silent for too long: start all again, and the run goes on.") from error
