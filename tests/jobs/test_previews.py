"""Samples of a job that still trains: the last ones, and a few of the earlier ones that stay."""

from unittest.mock import MagicMock

import pytest

from datalens_service.jobs import release_files
from datalens_service.jobs.release_files import SamplePreviews
from datalens_service.models.generators.generator import Generator
from datalens_service.store.datasets.artifacts import ArtifactStore
from deployments.deployment import MOMENTS, Deployment


def test_few_grids_stay_however_often_they_are_drawn(local: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = iter(bytes([number]) for number in range(1, 100))
    monkeypatch.setattr(release_files, "sample_picture", lambda _generator: next(pictures))
    lease = local.claim(local.submit(MOMENTS))
    artifacts, generator = ArtifactStore(local.database, local.folder), MagicMock(spec=Generator)
    for shows in (5, 6):
        # The second stands for a job that goes on after a crash.
        shown = SamplePreviews(artifacts, lease, seconds=0)
        for _ in range(shows):
            shown.show(generator)
    kept = {file.name: file.path.read_bytes()[0] for file in artifacts.list_artifacts(lease.job_id)}
    assert kept == {
        "preview-0001.png": 1, "preview-0002.png": 2, "preview-0004.png": 4, "preview-0008.png": 9, "samples.png": 11
    }  # fmt: skip
    assert all(file.releasable for file in artifacts.list_artifacts(lease.job_id))
