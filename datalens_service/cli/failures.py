"""Reports failures of commands: one sentence or a JSON object, and an exit code; never a traceback."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final

import typer

from datalens_service.base.errors import DatalensError, InsufficientStorage
from datalens_service.cli import output
from datalens_service.cli.output import drop_broken, is_unread
from datalens_service.client import ClientError


@contextmanager
def reported(*, as_json: bool) -> Iterator[None]:
    """Say what went wrong within the block: deliberate errors, wrong usage, and refusals of the operating system."""
    try:
        yield
    except (DatalensError, ClientError) as error:
        raise _exit(output.build_problem(error), as_json) from error
    except (OSError, UnicodeError, SystemExit) as error:
        drop_broken()
        if is_unread(error):
            raise typer.Exit(ExitCode.UNREAD) from error
        if isinstance(error, SystemExit):
            raise
        raise _exit(_describe(error), as_json) from error
    except typer.TyperException as error:
        if not as_json:
            raise
        problem = {"code": "usage", "title": "Wrong usage", "detail": error.format_message()}
        output.show_error(problem, as_json=True)
        raise typer.Exit(error.exit_code) from error


def _exit(problem: Mapping[str, Any], as_json: bool) -> typer.Exit:
    output.show_error(problem, as_json=as_json)
    return typer.Exit(get_exit_code(problem["code"]))


def _describe(error: OSError | UnicodeError) -> dict[str, Any]:
    from datalens_service.store.disk import is_full

    if isinstance(error, UnicodeEncodeError):
        # Not the text itself, which may be a key.
        detail = f"A name or value holds characters that {error.encoding} does not have: give another one."
        return {"code": "usage", "title": "Wrong usage", "detail": detail}
    if is_full(error):
        detail = f"No room is left on the disk{_place(error, ' of {}')}. Free some, and repeat the command."
        return {"code": InsufficientStorage.slug, "title": InsufficientStorage.title, "detail": detail}
    if isinstance(error, OSError):
        detail = f"{error.strerror or str(error) or type(error).__name__}{_place(error, ': {}')}"
    else:
        detail = f"It is not text as expected ({error})."
    return {"code": "file", "title": "File not usable", "detail": detail}


def _place(error: BaseException, form: str) -> str:
    name = getattr(error, "filename", None)
    return "" if name is None else form.format(name)


class ExitCode(IntEnum):
    """Exit codes; documented in docs/cli.md and in `datalens --help`."""

    OK = 0
    """Done."""
    JOB_FAILED = 1
    """The job failed or was cancelled, a proof does not hold, or something broke that the caller did not do."""
    BAD_INPUT = 2
    """Wrong usage, an unusable file, or a request that contradicts itself or the state of things."""
    BUDGET_EXCEEDED = 3
    """The remaining privacy budget does not cover the request."""
    NOT_FOUND = 4
    """No such object, or no API key that reaches it."""
    UNREACHABLE = 5
    """The service, its database or a worker it needs is not there now; later it may be."""
    UNREAD = 141
    """The reader of the output went away, as after `| head`; 128 and the number of SIGPIPE."""
    INTERRUPTED = 130
    """Ctrl-C. A job on a service goes on; `datalens train` goes on when it is started again."""


_EXIT_CODES: Final = {
    ExitCode.JOB_FAILED: "internal-error job-stopped ledger-corrupt out-of-memory contribution-failed file-damaged "
    "report-incomplete stale-lease",
    ExitCode.BUDGET_EXCEEDED: "privacy-budget-exceeded",
    ExitCode.NOT_FOUND: "not-found unauthorized forbidden",
    ExitCode.UNREACHABLE: "rate-limited service-unreachable store-unavailable insufficient-storage unexpected-answer "
    "worker-unavailable",
}
"""Problem types of each; every other is the caller's to mend."""

HELP: Final = (
    "Exit codes: 0 done; 1 the job failed or was cancelled, or a proof does not hold; "
    "2 bad input or usage; 3 privacy budget exceeded; "
    "4 not found or no valid API key; 5 service unreachable or disk full; 130 interrupted; 141 nobody reads the output."
)


def get_exit_code(slug: str) -> ExitCode:
    """Exit code of a problem type."""
    return next((code for code, slugs in _EXIT_CODES.items() if slug in slugs.split()), ExitCode.BAD_INPUT)
