"""Logs as JSON lines on standard error, with the ids of request and job; no private value enters them.

Lines of libraries take the same form: uvicorn, Celery and SQLAlchemy write through here as well.
"""

import io
import logging
import sys
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO, cast

import structlog

PUBLIC_FIELDS: Final = frozenset({
    "event", "level", "timestamp", "job_id", "request_id", "logger", "error", "at", "cause", "detail",
    "allowed", "attempts", "exit_code", "figure", "lease_token", "max_ranks", "parent", "pid", "problem", "rank",
    "ranks", "reason", "state",
    "code", "database", "delivery_id", "frozen", "header", "max_running_jobs", "method", "part", "route", "seconds",
    "status", "variable",
})  # fmt: skip
"""Fields that lines may have; any other is left out. None has a value that depends on private records."""


def configure(level: str) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _leave_out_undeclared,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # Looked up for each line: standard error may be replaced while the process runs. Text and end of line are
        # one write: processes that share an unbuffered file do not tear each other's lines.
        logger_factory=lambda *_: structlog.WriteLogger(cast(TextIO, _StandardError())),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Libraries()], level=logging.WARNING)
    # Celery says which message was taken and how its task ended.
    logging.getLogger("celery").setLevel(level.upper())


def _leave_out_undeclared(_logger: object, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Keep the public fields of a line alone."""
    return {name: event[name] for name in event if name in PUBLIC_FIELDS}


def bind_job(job_id: str) -> None:
    """Have every further line of this thread name the job."""
    structlog.contextvars.bind_contextvars(job_id=job_id)


class _StandardError(io.TextIOBase):
    """Standard error without its errors: a failure to write is no reason to end a job or a loop.

    A disk may be full, a stream closed, and a process that began without the stream has None in its place.
    """

    def write(self, text: str) -> int:
        """Write, and return the number of characters taken."""
        with suppress(OSError, ValueError, AttributeError):
            return sys.stderr.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()


class _Libraries(logging.Handler):
    """Writes lines of libraries in our form.

    With an exception only the fixed part of the message is kept: the rest may quote what the code worked on.
    """

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        message = record.getMessage() if error is None else str(record.msg)
        fields = {} if error is None else outline(error)
        structlog.get_logger().log(record.levelno, message, logger=record.name, **fields)


def outline(error: BaseException) -> dict[str, object]:
    """Describe an exception for the log: type and places of it and its causes, never a message or a variable.

    A message may quote what the code was working on, and here that may be a private image.
    """
    frames = traceback.walk_tb(error.__traceback__)
    places = [f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}" for frame, line in frames]
    described: dict[str, object] = {"error": type(error).__qualname__, "at": places}
    cause = error.__cause__ or error.__context__
    if cause is not None:
        described["cause"] = outline(cause)
    return described
