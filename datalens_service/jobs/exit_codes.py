"""How a job process ends."""

from enum import IntEnum


class Exit(IntEnum):
    """How a job process ends on its own; a negative code is the signal that killed it."""

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
