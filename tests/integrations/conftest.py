"""A service in this process with one succeeded job."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from api.deps import Services
from datalens_service.client import Client, Job
from datalens_service.jobs.execute import execute
from datalens_service.settings import Settings
from datalens_service.store.jobs import leases
from in_process_service import InProcessService

NUM_RECORDS = 80
SPEC = {"method": "moments", "epsilon": 1.0, "synthetic_images": 50, "evaluation": {"enabled": False}}


class Released(NamedTuple):
    url: str
    api_key: str
    client: Client
    job: Job


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Released]:
    folder = tmp_path_factory.mktemp("integrations")
    shutil.copy(sqlite_template, folder)
    service = InProcessService(Settings(data_dir=folder))
    try:
        with Client(service.url, service.api_key) as client:
            job = run_job(client, service.services, write_upload(folder / "halves.npz"))
            yield Released(service.url, service.api_key, client, job)
    finally:
        service.stop()


def write_upload(path: Path) -> Path:
    """80 images of 8×8 pixels in two classes."""
    rng = np.random.default_rng(20)
    labels = np.arange(NUM_RECORDS) % 2
    images = rng.integers(0, 60, (NUM_RECORDS, 8, 8), dtype=np.uint8)
    images[labels == 1, 4:] += 150
    np.savez(path, train_images=images, train_labels=labels)
    return path


def run_job(client: Client, services: Services, upload: Path) -> Job:
    """A job that this process works on itself."""
    job = client.submit(client.upload_dataset(upload, epsilon=2.0, confirm_classes=True).id, SPEC)
    lease = leases.claim(services.database, job.id, "test", 600)
    assert lease is not None
    execute(services.database, services.artifacts, services.settings, lease)
    done = client.get_job(job.id)
    assert done.state == "succeeded", done.error
    return done
