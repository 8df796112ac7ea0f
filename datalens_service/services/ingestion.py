"""From an uploaded file to a registered data set: all of it, or nothing that stays."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from datalens_service.data.notices import Notice, Notices
from datalens_service.data.sandbox.decode import Counts
from datalens_service.data.sandbox.sandbox import Confinement, Decoded, decode
from datalens_service.errors import NotFound
from datalens_service.services.dataset_declaration import DatasetForm
from datalens_service.settings import Settings
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets, joining, validations, views
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.datasets.joining import Joined
from datalens_service.store.datasets.record_store import RecordStore
from datalens_service.store.datasets.upload_sessions import partial_files
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.disk import translated

_NOT_KEPT: Final = "The records could not be kept; free the disk of ⟦DATALENS_DATA_DIR⟧."


class Registered(NamedTuple):
    """A new data set.

    Attributes:
        dataset: As it is stored.
        counts: Of its records. Private.
        notices: What its owner should know of how it was read, and what it shares. Private.
        joined: The account that pays for it, if it is one of before. Private.
    """

    dataset: StoredDataset
    counts: Counts
    notices: tuple[Notice, ...]
    joined: Joined | None


def register(
    database: Database,
    settings: Settings,
    path: Path,
    form: DatasetForm,
    *,
    tenant_id: str,
    dataset_id: str | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Registered:
    """Check an upload, keep its records, and open or join the account that pays for them.

    Args:
        database: Where it is registered.
        settings: The records go to the folder `datasets` of data_dir, or to an object store; limits of the process
            that reads the file.
        path: The file; contents decide the format.
        form: Budget, name and classes.
        tenant_id: Whose records they are.
        dataset_id: Of the new data set; None draws one.
        stopping: Asked now and then; True gives up.

    Raises:
        InvalidDataset: The file is not a usable labelled image set (`sandbox.Refused`: with its bad files).
        InvalidSpec: ε is missing, or δ is not below 1/n.
        NotFound: The tenant does not have the data set that `form.account` names.
        StateConflict: The records have a budget already, another than the one named.
        InsufficientStorage: A disk is full.
        StoreUnavailable: Disk or database did not take it, or the service stops.
    """
    dataset_id = dataset_id or datasets.new_id()
    folder, records = records_folder(settings.data_dir) / dataset_id, RecordStore(settings)
    with translated(_NOT_KEPT), _locked(folder.parent, fcntl.LOCK_SH), _scratch(folder) as scratch:
        try:
            confinement = Confinement(settings.decode_memory_bytes, settings.decode_seconds)
            decoded = decode(path, scratch, confinement, form.choices, stopping=stopping)
            decoded.records.rename(folder)
            links = Notices()
            records_path = records.keep(folder)
            dataset = _registered(database, dataset_id, records_path, decoded, form, tenant_id, links)
        except BaseException:
            records.discard(folder)
            raise
        if records_path != str(folder):
            shutil.rmtree(folder, ignore_errors=True)
    notices = (*decoded.notices, *links.collected())
    return Registered(dataset, decoded.counts, notices, joining.joined(database, dataset.id, dataset.known_records))


def records_folder(data_dir: Path) -> Path:
    """Where records lie, one folder per data set."""
    return data_dir.absolute() / "datasets"


def remove(database: Database, artifacts: ArtifactStore, settings: Settings, dataset_id: str) -> DatasetView:
    """Delete a data set, its records, its report and what its jobs made for the owner alone. Repeatable.

    What was spent on the records stays spent, and what was released stays released. An upload that is being read,
    or cannot be used, goes as well.

    Raises:
        StateConflict: A job on it has not ended.
        NotFound: No such data set.
        StoreUnavailable: A file could not be removed.
    """
    try:
        dataset = datasets.delete(database, dataset_id)
    except NotFound:
        dataset = None
    validation = validations.delete(database, dataset_id)
    if dataset is not None:
        remove_records(settings, dataset)
        artifacts.delete_private(dataset_id)
    elif validation is None:
        raise NotFound("There is no such data set.")
    if validation is not None and validation.upload_id is not None:
        (partial_files(settings.data_dir) / validation.upload_id).unlink(missing_ok=True)
    return views.get(database, dataset_id)


def remove_records(settings: Settings, dataset: StoredDataset) -> None:
    """Remove the records of a data set that was deleted. Repeatable."""
    RecordStore(settings).remove(dataset.records_path)


def remove_leftovers(database: Database, artifacts: ArtifactStore, settings: Settings) -> None:
    """Remove private files that a killed process left: registered never, or deleted already.

    Leaves records alone while any process is registering an upload.
    """
    for dataset_id in datasets.deleted(database):
        artifacts.delete_private(dataset_id)
    folder = records_folder(settings.data_dir)
    with suppress(BlockingIOError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in folder.iterdir():
            # An unfinished folder is named `.ds_…-…` until it is complete.
            if path.name.startswith((".ds_", "ds_")) and not _in_use(database, path.name):
                shutil.rmtree(path, ignore_errors=True)
        RecordStore(settings).remove_leftovers(partial(_in_use, database))


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, kind)
        yield


def _in_use(database: Database, dataset_id: str) -> bool:
    try:
        return datasets.get(database, dataset_id).state is DatasetState.READY
    except NotFound:
        return False


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """The one place that the process which reads the file can write to; on the same disk as the records."""
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent, ignore_cleanup_errors=True) as name:
        yield Path(name)


def _registered(
    database: Database,
    dataset_id: str,
    records_path: str,
    decoded: Decoded,
    form: DatasetForm,
    tenant_id: str,
    notices: Notices,
) -> StoredDataset:
    # The partition key is drawn by the store and never written beside the records.
    dataset = decoded.dataset
    schema = dataset.schema.model_copy(update={"records_are_public": bool(form.public_records)})
    return datasets.create(
        database,
        dataset_id=dataset_id,
        name=form.name or dataset_id,
        schema=schema,
        images=dataset.train.images,
        units=dataset.train.units,
        format=decoded.format,
        has_test=dataset.test is not None,
        records_path=records_path,
        epsilon=form.epsilon,
        delta=form.delta,
        account=form.account,
        tenant_id=tenant_id,
        notices=notices,
    )
