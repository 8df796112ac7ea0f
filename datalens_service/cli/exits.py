"""What the exit code of every command means."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Exit codes; documented in docs/cli.md and in `datalens --help`."""

    OK = 0
    """Done."""
    JOB_FAILED = 1
    """The job failed or was cancelled, a proof contradicts itself, or something broke that the caller did not do."""
    BAD_INPUT = 2
    """Wrong usage, an unusable file, or a request that contradicts itself or the state of things."""
    BUDGET_EXCEEDED = 3
    """The remaining privacy budget does not cover the request."""
    NOT_FOUND = 4
    """No such object, or no API key that reaches it."""
    UNREACHABLE = 5
    """The service, its database or a worker it needs is not there now; later it may be."""
    UNREAD = 141
    """Whoever read the output went away, as after `| head`; 128 and the number of SIGPIPE."""
    INTERRUPTED = 130
    """Ctrl-C. A job on a service goes on; `datalens train` goes on when it is started again."""


_EXIT_CODES: Final = {
    "internal-error": ExitCode.JOB_FAILED,
    "job-stopped": ExitCode.JOB_FAILED,
    "ledger-corrupt": ExitCode.JOB_FAILED,
    "report-incomplete": ExitCode.JOB_FAILED,
    "stale-lease": ExitCode.JOB_FAILED,
    "privacy-budget-exceeded": ExitCode.BUDGET_EXCEEDED,
    "not-found": ExitCode.NOT_FOUND,
    "unauthorized": ExitCode.NOT_FOUND,
    "forbidden": ExitCode.NOT_FOUND,
    "rate-limited": ExitCode.UNREACHABLE,
    "service-unreachable": ExitCode.UNREACHABLE,
    "store-unavailable": ExitCode.UNREACHABLE,
    "insufficient-storage": ExitCode.UNREACHABLE,
    "unexpected-answer": ExitCode.UNREACHABLE,
    "worker-unavailable": ExitCode.UNREACHABLE,
}

HELP: Final = (
    "Exit codes: 0 done; 1 the job failed or was cancelled, or a proof contradicts itself; "
    "2 bad input or usage; 3 privacy budget exceeded; "
    "4 not found or no valid API key; 5 service unreachable or disk full; 130 interrupted; 141 nobody reads the output."
)


def get_exit_code(slug: str) -> ExitCode:
    """Exit code of a problem type; every problem that is not named is the caller's to mend."""
    return _EXIT_CODES.get(slug, ExitCode.BAD_INPUT)
