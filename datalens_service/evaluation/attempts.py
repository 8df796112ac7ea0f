"""Figures one by one: one that fails is reported as unavailable and leaves the others as they are."""

from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from datalens_service import logs
from datalens_service.errors import WorkerUnavailable
from datalens_service.evaluation.measures import Unavailable
from datalens_service.evaluation.metrics.classifier_benchmark import Progress

FAILED: Final = "It could not be computed. The log of the worker says where in the program it failed."

Figure = TypeVar("Figure")
_log = structlog.get_logger()


def attempted(figure: str, compute: Callable[[], Figure], progress: Progress) -> Figure | Unavailable:
    """A figure, or the fact that it could not be had.

    What an unforeseen error says may quote private values: neither the report nor the log repeats it.

    Args:
        figure: For the report; no function of the records.
        compute: May raise anything.
        progress: What its observer raises goes on to the caller.
    """
    try:
        return compute()
    except WorkerUnavailable as error:
        return Unavailable(figure=figure, reason=error.detail)
    except Exception as error:
        if error is progress.interruption:
            raise
        _log.error("a figure failed", figure=figure, **logs.outline(error))
        return Unavailable(figure=figure, reason=FAILED)
