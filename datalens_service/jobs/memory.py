"""Memory that a job needs by its plan, and that its process may have."""

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from datalens_service.base.errors import InvalidSpec, OutOfMemory
from datalens_service.mechanisms.confined import lacks_memory
from datalens_service.planning.resources import expect_memory
from datalens_service.spec import TrainingSpec
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


def compare_memory(database: Database, job_id: str) -> str:
    """A sentence on a job that a worker like this one has lost.

    Empty where no plan tells: of an audit, or of a method that is not installed here.
    """
    job = jobs.get(database, job_id)
    if job.is_audit:
        return ""
    try:
        method = TrainingSpec.model_validate(job.spec).method
        needed = expect_memory(method, datasets.get(database, job.dataset_id).schema)
    except (ValidationError, InvalidSpec):
        return ""
    return f"By its plan {_compare(needed, read_limit())}."


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
