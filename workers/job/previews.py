"""Samples of a generator that is still learning, for whoever watches the job: post-processing of what is paid for."""

from __future__ import annotations

import time

from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import ReleasedModel
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.leases import Lease
from workers.job.release_files import SAMPLES, sample_picture


class SamplePreviews:
    """Replaces the job's sample grid now and then; the last one comes with the other files.

    Args:
        artifacts: Where to.
        lease: Of the job.
        seconds: Least time between two grids; drawing one that takes long is done less often.
    """

    def __init__(self, artifacts: ArtifactStore, lease: Lease, seconds: float = 10.0) -> None:
        self._artifacts = artifacts
        self._lease = lease
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def due(self) -> bool:
        """Whether enough time has passed since the last one."""
        return time.monotonic() >= self._next

    def show(self, model: ReleasedModel) -> None:
        """Store the grid of a generator; of another model nothing is shown.

        Raises:
            StaleLease: Another worker holds the job.
            StoreUnavailable: The disk did not take it.
        """
        if not isinstance(model, Generator):
            return
        began = time.monotonic()
        self._artifacts.put(self._lease, SAMPLES, sample_picture(model), releasable=True, media_type="image/png")
        now = time.monotonic()
        self._next = now + max(self._seconds, 20 * (now - began))
