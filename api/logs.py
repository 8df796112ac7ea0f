"""Logs as JSON lines on standard error, with the request's id on each; no private value enters them."""

from __future__ import annotations

import logging
import sys
from types import TracebackType

import structlog


def configure(level: str) -> None:
    """Set up structlog for this process.

    Args:
        level: debug, info, warning or error.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # Looked up for each line: standard error may be replaced while the process runs.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def places(traceback: TracebackType | None) -> list[str]:
    """Where an exception came from, as `file:line function`; neither its message nor any variable."""
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append(f"{code.co_filename}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return found
