"""Detector on files that a job leaves behind: whatever it forgets lies in its private folder, and ends with it."""

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from datalens_service.jobs import execute
from datalens_service.methods.sums import moments
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import MOMENTS, lamps

from .alarm import expect
from .detect_jobs import _execute
from .detect_ledger import deployment
from .written_files import written_files

class_vectors = moments.class_vectors


def spilling(rows: Any, measured: Any) -> Any:
    """Keeps rows on the disk, and forgets them."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        np.save(file, rows.values)
    return class_vectors(rows, measured)


def what_a_job_forgets_ends_with_it(_rng: np.random.Generator) -> None:
    """S3: temporary files lie in the private folder; a job leaves no file outside of the folder of the service."""
    with deployment() as local:
        job = local.submit(MOMENTS, local.upload(lamps()))
        spilled = mock.patch.object(moments, "class_vectors", spilling)
        with spilled, mock.patch.object(execute, "log"), written_files() as left:
            ended = _execute(local, job.id)
        expect(ended.state is JobState.SUCCEEDED, f"a job that spills succeeds: {ended.error}")
        elsewhere = [path for path in left if not path.is_relative_to(Path(local.folder).absolute())]
        expect(elsewhere == [], f"a job leaves no file elsewhere: {elsewhere}")
        expect(local.private_folders() == [], "a job that ended leaves no private file")
