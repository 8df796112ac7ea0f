"""A job whose records lie encrypted in an object store gives, up to the noise, what it gives with a folder."""

import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from test_job_over_ranks import check_ranks, generator, run, silent

from datalens_service.services import ingestion, removal
from datalens_service.store.access import keys
from datalens_service.store.datasets import datasets, uploads
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.datasets.record_files import RecordStore
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.schema.tables import DatasetRow
from deployments.deployment import QUICK, Deployment, lamps
from tests.store.test_files import Bucket, bucket, s3

__all__ = ["bucket", "s3", "silent"]


@pytest.fixture
def remote(local: Deployment, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    key = tmp_path / "records.key"
    key.write_bytes(os.urandom(32))
    monkeypatch.setenv("DATALENS_RECORDS_URL", f"s3://{bucket.name}/private")
    monkeypatch.setenv("DATALENS_RECORDS_KEY_FILE", str(key))
    return local


def registered(remote: Deployment, folder: Path) -> StoredDataset:
    records = lamps()
    assert records.test is not None
    path = folder / "lamps.npz"
    np.savez(path, images=records.train.images, labels=records.train.labels)
    key, _ = keys.create(remote.database, "laptop")
    upload = uploads.begin_request(remote.database, key.id, {"epsilon": 10.0, "name": "lamps", "confirm_classes": True})
    ingestion.receive(remote.database, remote.settings, path, upload)
    return datasets.get(remote.database, upload.dataset_id)


def test_worker_trains_on_them_and_keeps_nothing(remote: Deployment, bucket: Bucket, tmp_path: Path) -> None:
    dataset = registered(remote, tmp_path)
    assert dataset.records_path == f"sealed:{dataset.id}"
    assert list((remote.folder / "datasets").glob("ds_*")) == []
    assert len(bucket.contents()) >= 3
    job = remote.submit(QUICK, dataset)
    assert remote.execute(job).state == JobState.SUCCEEDED
    assert not list(remote.folder.rglob("*.npy"))


def move_to_the_store(remote: Deployment, dataset: StoredDataset) -> None:
    """The same data set, whose records are in the object store from now on and nowhere else."""
    folder = Path(dataset.records_path)
    with remote.database.transaction() as session:
        session.get_one(DatasetRow, dataset.id).records_path = RecordStore(remote.settings).keep(folder)
    shutil.rmtree(folder)


@pytest.mark.usefixtures("silent")
def test_result_is_that_of_a_folder_to_the_bit(remote: Deployment) -> None:
    dataset = remote.upload(lamps())
    from_folder = remote.submit(QUICK, dataset)
    run(remote, 1)
    move_to_the_store(remote, dataset)
    from_store = remote.submit(QUICK, dataset)
    run(remote, 1)
    assert generator(remote, from_store) == generator(remote, from_folder)
    assert remote.stored_steps(from_store) == remote.stored_steps(from_folder)


@pytest.mark.usefixtures("silent")
def test_two_ranks_on_records_in_the_store_are_one_on_a_folder(remote: Deployment) -> None:
    dataset = remote.upload(lamps())
    # The rank that is met fetches the records itself, as on another machine.
    check_ranks(remote, dataset, partial(move_to_the_store, remote, dataset))
    assert not list(remote.folder.rglob("*.npy"))


def test_deleted_dataset_is_gone_from_the_object_store(remote: Deployment, bucket: Bucket, tmp_path: Path) -> None:
    dataset = registered(remote, tmp_path)
    removal.remove_dataset(remote.database, remote.artifacts, remote.settings, dataset.id)
    assert bucket.contents() == {}


def test_upload_that_is_not_registered_leaves_nothing(
    remote: Deployment, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        assert bucket.contents()
        raise RuntimeError("the database is away")

    monkeypatch.setattr(datasets, "create", refuse)
    with pytest.raises(RuntimeError):
        registered(remote, tmp_path)
    assert bucket.contents() == {}
    assert list((remote.folder / "datasets").glob("*ds_*")) == []
