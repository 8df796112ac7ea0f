"""Exit codes of job processes, and the problem that a failed job shows, which is safe to show to anybody."""

from enum import IntEnum
from pathlib import Path
from typing import Any

from datalens_service.base.errors import ContributionFailed, DatalensError, InsufficientStorage, OutOfMemory
from datalens_service.mechanisms.confined import lacks_memory
from datalens_service.store.disk import check_writable, is_full

INTERNAL = {
    "type": "internal-error",
    "title": "Internal error",
    "detail": "The job ended by an error that is not its fault; the operator finds its place in the worker's log. "
    "What was charged stays charged.",
}


def check_disk(error: Exception, folder: Path) -> None:
    """Tell a full disk from an error of the job: a job that lacks room is resumed when there is some.

    Libraries do not always name the cause, and a failed contribution never does, so the disk is looked at, too.

    Raises:
        InsufficientStorage: The disk is full.
    """
    if is_full(error):
        raise InsufficientStorage(
            "The job needs more room on the disk of ⟦DATALENS_DATA_DIR⟧; free some of it."
        ) from error
    if isinstance(error, ContributionFailed) or not isinstance(error, DatalensError):
        check_writable(folder, "⟦DATALENS_DATA_DIR⟧")


def describe_problem(error: Exception) -> dict[str, Any]:
    """The problem of an exception that ended a job: `type`, `title`, `detail`, public members.

    Only deliberate errors may speak; the message of any other may quote private data.
    """
    if isinstance(error, DatalensError):
        return {**error.extra, "type": error.slug, "title": error.title, "detail": error.text}
    if lacks_memory(error):
        return describe_problem(OutOfMemory("The job needs more memory than its worker has. What was charged stays."))
    return dict(INTERNAL)


class Exit(IntEnum):
    """Exit codes of a job process that ends on its own; a negative code is the signal that killed it."""

    ENDED = 0
    """The job has ended, or another worker holds it: nothing is left to do."""
    CRASHED = 1
    """An error outside the job, for example a broken installation."""
    PAUSED = 74
    """The job waits until somebody resumes it."""
    GIVEN_BACK = 75
    """The job is in the queue again: the process was asked to end, or the database was not available."""
    FENCED = 76
    """Another worker took the job over."""
