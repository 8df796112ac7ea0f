"""Samples of a generator that is still learning, for whoever watches the job: post-processing of what is paid for."""

from __future__ import annotations

import time
from typing import Final

from datalens_service.jobs.release_files import SAMPLES, sample_picture
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import ReleasedModel
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.leases import Lease

KEPT_PREVIEW: Final = "preview-"
"""How the names of grids begin that stay, so that one can see how the generator learned."""


class SamplePreviews:
    """Replaces the job's sample grid now and then; the last one comes with the other files.

    The grids number 1, 2, 4, 8 and so on stay beside it: few, however long a job takes.

    Args:
        artifacts: Where to.
        seconds: Least time between two grids; drawing one that takes long is done less often.
    """

    def __init__(self, artifacts: ArtifactStore, lease: Lease, seconds: float = 10.0) -> None:
        self._artifacts = artifacts
        self._lease = lease
        self._seconds = seconds
        self._next = time.monotonic() + seconds
        self._shown = max((_number(file.name) for file in artifacts.list_artifacts(lease.job_id)), default=0)

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
        picture = sample_picture(model)
        self._put(SAMPLES, picture)
        self._shown += 1
        if self._shown & (self._shown - 1) == 0:
            self._put(f"{KEPT_PREVIEW}{self._shown:04d}.png", picture)
        now = time.monotonic()
        self._next = now + max(self._seconds, 20 * (now - began))

    def _put(self, name: str, picture: bytes) -> None:
        self._artifacts.put(self._lease, name, picture, releasable=True, media_type="image/png")


def _number(name: str) -> int:
    number = name.removeprefix(KEPT_PREVIEW).removesuffix(".png")
    return int(number) if name.startswith(KEPT_PREVIEW) and number.isdigit() else 0
