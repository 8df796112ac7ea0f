"""A disk that fills up during a job: the job waits for room, and pays for nothing twice."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from safetensors import SafetensorError

from datalens_service.base.checkpoint import Checkpoints
from datalens_service.base.errors import InsufficientStorage, StoreUnavailable
from datalens_service.base.progress import Phase
from datalens_service.jobs.failures import check_disk
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.workers.run_job import run_job
from deployments.deployment import QUICK, Deployment
from disks import LIMIT_BYTES, SmallDisk


@pytest.fixture
def deployment(sqlite_database: Database, disk: SmallDisk) -> Iterator[Deployment]:
    """Its data folder is on the small disk, its database is not."""
    found = Deployment(sqlite_database, disk.folder)
    yield found
    found.close()


def nothing_left(disk: SmallDisk) -> int:
    """What to leave so that no file can grow at all."""
    return 0 if disk.real else -LIMIT_BYTES


@pytest.mark.parametrize("file", [0, 1, 3, 5, 8])
def test_a_job_that_finds_no_room_for_its_files_is_resumed_and_pays_once(
    deployment: Deployment, disk: SmallDisk, file: int
) -> None:
    """0 is written by safetensors, which has errors of its own; the others by us."""
    job = deployment.submit(QUICK)
    lease = deployment.claim(job)
    with ExitStack() as filled:

        def fill(phase: str, value: int, _maximum: int) -> None:
            if (phase, value) == (Phase.PACKAGING, file):
                filled.enter_context(disk.full(nothing_left(disk)))

        with pytest.raises(StoreUnavailable):
            deployment.execute(job, fill, lease)
    assert deployment.job(job).state is JobState.RUNNING
    assert not list(deployment.folder.rglob(".tmp-*"))
    charged = deployment.job(job).charged_units
    leases.give_back(deployment.database, lease)

    ended = deployment.execute(job)

    assert (ended.state, ended.error) == (JobState.SUCCEEDED, None)
    assert ended.charged_units == charged == deployment.statement(job).charged_units
    assert len(deployment.artifacts.list_artifacts(job.id)) == 14


def test_a_job_is_not_begun_on_a_full_disk(deployment: Deployment, disk: SmallDisk) -> None:
    job = deployment.submit(QUICK)
    with disk.full(nothing_left(disk)), pytest.raises(InsufficientStorage, match="DATALENS_DATA_DIR"):
        run_job(deployment.settings, job.id, threading.Event())
    assert (deployment.job(job).state, deployment.job(job).attempts) == (JobState.QUEUED, 0)


def test_a_checkpoint_without_room_leaves_the_last_one(disk: SmallDisk) -> None:
    checkpoints = Checkpoints(disk.folder / "checkpoint.safetensors", "digest")
    checkpoints.save(1, {"x": np.zeros(3)})
    with disk.full(), pytest.raises(SafetensorError) as failed:
        checkpoints.save(2, {"x": np.zeros(2**18)})
    with pytest.raises(InsufficientStorage):
        check_disk(failed.value, disk.folder)
    assert [path.name for path in disk.folder.iterdir()] == ["checkpoint.safetensors"]
    found = checkpoints.load()
    assert found is not None
    assert found[0] == 1


def test_errors_of_a_job_on_a_disk_with_room_are_its_own(disk: SmallDisk) -> None:
    for error in (ValueError("x"), OSError("x"), SafetensorError("x")):
        check_disk(error, disk.folder)
