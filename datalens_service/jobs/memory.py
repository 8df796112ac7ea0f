"""Memory that a job needs by its plan, and that its process, or its GPU, may have."""

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from datalens_service.base.errors import GpuMemoryTaken, InvalidSpec, OutOfMemory
from datalens_service.base.gpu import GpuMemory, read_gpu_memory
from datalens_service.mechanisms.confined import lacks_memory
from datalens_service.planning.resources import expect_memory
from datalens_service.spec import Device, TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs

_GROUPS = Path("/sys/fs/cgroup")
_ERROR_OF_PLANS = 1.5
"""A job whose plan is too high by no more may fit after all, and begins."""


def read_limit() -> int:
    """Bytes that this process may have: of the machine, its control groups, and its address space."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits()]
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    return min(limits if space == resource.RLIM_INFINITY else [*limits, space])


@contextmanager
def enough_memory(needed: int) -> Generator[None]:
    """Refuse what cannot fit before it begins, and say of what did not fit how much it lacks.

    Args:
        needed: Bytes, by the plan; public.

    Raises:
        OutOfMemory: There is not enough.
    """
    limit = read_limit()
    if needed > _ERROR_OF_PLANS * limit:
        raise OutOfMemory(f"The job cannot fit: {_compare(needed, limit)}. Nothing was charged now.")
    try:
        yield
    except Exception as error:
        if not lacks_memory(error):
            raise
        raise OutOfMemory(f"The job did not fit: {_compare(needed, limit)}. What was charged stays charged.") from error


@contextmanager
def enough_gpu_memory(needed: int, device: str) -> Generator[None]:
    """Tell a GPU whose memory another program has from a job that needs more than there is.

    What decides is the plan and what other programs have, both public.

    Args:
        needed: Bytes, by the plan; public.
        device: The GPU, as torch calls it.

    Raises:
        GpuMemoryTaken: Another program has what the job lacked.
        OutOfMemory: The job did not fit, whoever else is there.
    """
    try:
        yield
    except Exception as error:
        if not lacks_memory(error):
            raise
        total, ours = _read_left_by_others(device)
        if is_taken(needed, GpuMemory(total, ours)):
            raise GpuMemoryTaken(
                "Another program has the memory of the GPU that this job needs. The job can be resumed once enough is "
                "free; what was charged stays charged."
            ) from error
        gpu = f"it needs about {needed / 2**30:.1f} GiB of memory, and its GPU has {total / 2**30:.1f} GiB"
        raise OutOfMemory(f"The job did not fit: {gpu}. What was charged stays charged.") from error


TAKEN = (
    "Another program has the memory of its GPU; it takes the next job once enough is free. End that program, or wait."
)
"""The reason that a worker gives while it takes no job; without figures, for that program may be a job of a tenant."""


def is_taken(needed: int, memory: GpuMemory) -> bool:
    """Tell whether other programs leave a job less than it needs, or than the whole GPU if it needs more."""
    return _ERROR_OF_PLANS * memory.free < min(needed, memory.total)


def check_gpu_memory(database: Database, job_id: str, device: str, ranks: int) -> None:
    """Check that other programs leave a job its memory on the GPUs that it would train on, before it is claimed.

    Args:
        device: The setting: auto, cuda, cuda:1, …
        ranks: Number of GPUs that the worker uses for a job.

    Raises:
        GpuMemoryTaken: They do not.
    """
    expected = _expect(database, job_id)
    if expected is None or expected.device is Device.CPU:
        return
    named = device.partition(":")[2]
    for position in [int(named)] if named else range(ranks):
        memory = read_gpu_memory(position)
        if memory is not None and is_taken(expected.bytes, memory):
            raise GpuMemoryTaken(TAKEN)


def compare_memory(database: Database, job_id: str) -> str:
    """A sentence on a job that a worker like this one has lost.

    Empty where no plan tells.
    """
    expected = _expect(database, job_id)
    return "" if expected is None else f"By its plan {_compare(expected.bytes, read_limit())}."


class _Expected(NamedTuple):
    """Device and memory of a job, by what was asked for and planned: public."""

    device: Device
    bytes: int


def _expect(database: Database, job_id: str) -> _Expected | None:
    """None where no plan tells: of an audit, or of a method that is not installed here."""
    job = jobs.get(database, job_id)
    if job.is_audit:
        return None
    try:
        spec = TrainingSpec.model_validate(job.spec)
        return _Expected(spec.device, expect_memory(spec.method, datasets.get(database, job.dataset_id).schema))
    except (ValidationError, InvalidSpec):
        return None


def _read_left_by_others(device: str) -> tuple[int, int]:
    """The memory of a GPU that this process trains on, and how much of it other programs leave."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return total, free + torch.cuda.memory_reserved(device)


def _compare(needed: int, limit: int) -> str:
    return f"it needs about {needed / 2**30:.1f} GiB of memory, and its worker has {limit / 2**30:.1f} GiB"


def _group_limits() -> Generator[int]:
    """Yield the limits of this process's control group and all above it (version 2), or of its own (version 1)."""
    with suppress(OSError, ValueError):
        yield int((_GROUPS / "memory" / "memory.limit_in_bytes").read_text())
    with suppress(OSError):
        own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
        for folder in (_GROUPS / own, *(_GROUPS / own).parents):
            with suppress(OSError, ValueError):
                yield int((folder / "memory.max").read_text())
