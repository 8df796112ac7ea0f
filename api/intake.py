"""From an uploaded file to a registered data set: all of it, or nothing that stays."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from api.schemas import DatasetForm
from datalens_service.data import DEFAULT_LIMITS, READERS, detect
from datalens_service.data.dataset import Dataset
from datalens_service.data.stored import save_dataset
from datalens_service.data.upload import Upload
from datalens_service.errors import NotFound, StoreUnavailable
from datalens_service.store import datasets
from datalens_service.store.artifacts import ArtifactStore
from datalens_service.store.database import Database
from datalens_service.store.datasets import DatasetState, StoredDataset


def register(database: Database, data_dir: Path, path: Path, form: DatasetForm) -> StoredDataset:
    """Check an upload, keep its records, and open or join the account that pays for them.

    Args:
        database: Where it is registered.
        data_dir: The records go to its folder `datasets`.
        path: The file; contents decide the format.
        form: Budget, name and classes.

    Raises:
        InvalidDataset: The file is not a usable labelled image set.
        InvalidSpec: ε is missing, or δ is not below 1/n.
        StateConflict: The records have a budget already, another than the one named.
        StoreUnavailable: Disk or database did not take it.
    """
    format_name = detect(path)
    upload = READERS[format_name].read(path, class_names=form.classes, units=form.units, limits=DEFAULT_LIMITS)
    dataset_id = datasets.new_id()
    folder = records_folder(data_dir) / dataset_id
    with _locked(folder.parent, fcntl.LOCK_SH):
        try:
            # The partition key is drawn by the store and never written beside the records.
            save_dataset(Dataset(*upload, partition_key=b""), folder)
            return _registered(database, dataset_id, folder, upload, format_name, form)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise StoreUnavailable("The records could not be kept; free the disk of data_dir.") from error
            raise


def records_folder(data_dir: Path) -> Path:
    """Where records lie, one folder per data set."""
    return data_dir.absolute() / "datasets"


def remove(database: Database, artifacts: ArtifactStore, dataset_id: str) -> None:
    """Delete a data set, its records and what its jobs made for the owner alone. Repeatable.

    What was spent on the records stays spent, and what was released stays released.

    Raises:
        StateConflict: A job on it is queued or running.
        NotFound: No such data set.
        StoreUnavailable: A file could not be removed.
    """
    shutil.rmtree(datasets.delete(database, dataset_id).records_path, ignore_errors=True)
    artifacts.delete_private(dataset_id)


def remove_leftovers(database: Database, artifacts: ArtifactStore, data_dir: Path) -> None:
    """Remove private files that a killed process left: registered never, or deleted already.

    Leaves records alone while any process is registering an upload.
    """
    for dataset_id in datasets.deleted(database):
        artifacts.delete_private(dataset_id)
    folder = records_folder(data_dir)
    with suppress(BlockingIOError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in folder.iterdir():
            # An unfinished folder is named `.ds_…-…` until it is complete.
            if path.name.startswith((".ds_", "ds_")) and not _in_use(database, path):
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, kind)
        yield


def _in_use(database: Database, path: Path) -> bool:
    try:
        return datasets.get(database, path.name).state is DatasetState.READY
    except NotFound:
        return False


def _registered(
    database: Database, dataset_id: str, folder: Path, upload: Upload, format_name: str, form: DatasetForm
) -> StoredDataset:
    return datasets.create(
        database,
        dataset_id=dataset_id,
        name=form.name or dataset_id,
        schema=upload.schema,
        images=upload.train.images,
        units=upload.train.units,
        format=format_name,
        has_test=upload.test is not None,
        records_path=str(folder),
        epsilon=form.epsilon,
        delta=form.delta,
    )
