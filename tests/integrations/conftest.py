"""A service in this process with one succeeded job."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from datalens_service.base.settings import Settings
from datalens_service.client import Client, Job
from in_process_service import InProcessService
from tests.api.api_builders import npz, work_off

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
    service, upload = InProcessService(Settings(data_dir=folder)), folder / "quarters.npz"
    upload.write_bytes(npz())
    try:
        with Client(service.url, service.api_key) as client:
            dataset = client.upload_dataset(upload, epsilon=2.0, confirm_classes=True)
            job = client.submit(dataset.id, SPEC, accept_low_utility=True)
            assert work_off(service.services, job.id).state == "succeeded"
            yield Released(service.url, service.api_key, client, client.get_job(job.id))
    finally:
        service.stop()
