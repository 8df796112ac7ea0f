"""Detector on the log of a whole job: only events and fields of a list, and the same for other records."""

import contextlib
import io
import logging
import tempfile
import threading
from typing import Any

import numpy as np
import structlog

from datalens_service.base import logs
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.store.jobs.jobs import JobState
from datalens_service.workers.run_job import run_job
from deployments.deployment import QUICK, Deployment

from .alarm import expect
from .detect_ledger import deployment
from .log_lines import check, parsed

_UNITS, _SIDE = 60, 8


def logs_say_nothing_of_records(rng: np.random.Generator) -> None:
    """S3: every line of a job has allowed fields; over other records of the same schema the log is the same."""
    printed = [_log_of_a_job(_dataset(rng, classes)) for classes in (1, 3)]
    for lines in printed:
        for line in lines:
            check(line)
    expect([_masked(line) for line in printed[0]] == [_masked(line) for line in printed[1]], "logs depend on no record")


def _log_of_a_job(dataset: Dataset) -> list[dict[str, Any]]:
    """All that the process of a job prints, from its claim to its end."""
    with deployment() as local:
        job = local.submit(QUICK, local.upload(dataset))
        lines = _printed(local, job.id)
        expect(local.job(job).state is JobState.SUCCEEDED, "a job with a log succeeds")
    expect(lines, "a job logs something")
    return lines


def _printed(local: Deployment, job_id: str) -> list[dict[str, Any]]:
    """What `python -m datalens_service.workers.run_job` does, in this process, where a bug may be planted."""
    logged = io.StringIO()
    # A process starts without any; those of a test runner would keep lines of libraries from ours.
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        with tempfile.TemporaryFile("w+") as printed:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(logged):
                logs.configure("debug")
                logs.bind_job(job_id)
                run_job(local.settings, job_id, threading.Event())
            printed.seek(0)
            expect(printed.read() == "1\n", "a job tells its supervisor the number of its lease, and nothing else")
    finally:
        root.handlers = handlers
        structlog.contextvars.clear_contextvars()
        structlog.reset_defaults()
    return [parsed(line) for line in logged.getvalue().splitlines()]


def _masked(line: dict[str, Any]) -> dict[str, Any]:
    return line | {"timestamp": "", "job_id": ""}


def _dataset(rng: np.random.Generator, classes: int) -> Dataset:
    """Any records of the same schema, of so many of its classes."""
    schema = Schema(channels=1, height=_SIDE, width=_SIDE, class_names=("a", "b", "c"), num_units=_UNITS)
    images = rng.integers(0, rng.integers(50, 256), (_UNITS, _SIDE, _SIDE, 1)).astype(np.uint8)
    return Dataset(schema, Split(images, rng.integers(classes, size=_UNITS)), None, b"k" * 32)
