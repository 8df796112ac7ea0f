"""Turns an uploaded file into a data set with a budget: all of it, or nothing that stays.

    receive   the file is read by a confined process; its records lie decoded in a folder of their own
    confirm   the class names become public, and the data set is created with the account that pays for it

What was confirmed beforehand goes both steps at once. In between, an upload has an `IntakeRow` and its folder, and
nothing else: no account, no fingerprints, no objects in a store.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy.orm import Session

from datalens_service.base.clock import to_second
from datalens_service.base.errors import NotFound, StateConflict, StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Schema
from datalens_service.data.intake.sandbox.sandbox import Decoded, decode
from datalens_service.data.intake.stored_dataset import load_dataset
from datalens_service.data.notices import Notices
from datalens_service.services.dataset_declaration import BudgetForm, DatasetForm
from datalens_service.services.upload_reports import ClassReview, Reading
from datalens_service.store.access import keys, quotas
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_clock
from datalens_service.store.datasets import datasets, upload_room, uploads, views
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.datasets.record_files import RecordStore, records_folder
from datalens_service.store.datasets.uploads import StoredUpload
from datalens_service.store.disk import lock_folder, translated

PRIVATE_READS = ("recognising records that come again",)

_NOT_KEPT: Final = "The records could not be kept; free the disk of ⟦DATALENS_DATA_DIR⟧."


def receive(
    database: Database,
    settings: Settings,
    path: Path,
    upload: StoredUpload,
    *,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Read an upload, keep its records, and open its budget if its class names are confirmed; else it waits for that.

    Args:
        settings: The records go to the folder `datasets` of data_dir; limits of the process that reads the file.
        path: The file; contents decide the format.
        upload: The declaration that came with it.
        stopping: Asked now and then; True gives up.

    Raises:
        InvalidDataset: The file is not a usable labelled image set (`sandbox.Refused`: with its bad files).
        StateConflict: It was deleted meanwhile, or as `confirm`.
        QuotaExceeded: The tenant has as many data sets or bytes as it may.
        InvalidSpec, NotFound, InsufficientStorage, StoreUnavailable: As `confirm`, or the service stops.
    """
    form = DatasetForm.model_validate(upload.form)
    folder = records_folder(settings.data_dir) / upload.dataset_id
    with translated(_NOT_KEPT), lock_folder(folder.parent, fcntl.LOCK_SH), _scratch(folder) as scratch:
        try:
            reserved = upload_room.measure_reserved(database, settings.data_dir)
            confinement = upload_room.confine(settings, scratch, settings.decode_seconds, reserved)
            decoded = decode(path, scratch, confinement, form.choices, stopping=stopping)
            decoded.records.rename(folder)
            _check_bytes(database, settings, upload)
            if form.confirms(decoded.upload.schema.class_names):
                _open(database, settings, upload, form, Reading.from_decoded(decoded))
            else:
                expires_at = to_second(read_clock(database)) + timedelta(hours=settings.upload_hours)
                uploads.note(database, upload, DatasetState.REVIEW, _reviewed(decoded, form, expires_at))
        except BaseException:
            _discard_unless_kept(database, settings, folder)
            raise


def confirm(database: Database, settings: Settings, dataset_id: str, budget: BudgetForm) -> None:
    """Make the class names of an upload public and open or join the account that pays for its records. Repeatable.

    An upload that is refused here stays as it was: it can be confirmed with another budget, or deleted.

    Args:
        settings: The records go to an object store now, if there is one.
        budget: Instead of the declared one; one that names nothing leaves that.

    Raises:
        InvalidDataset: The records cannot have the budget that is named.
        InvalidSpec: ε is missing, or δ is not below 1/n.
        NotFound: No such data set, or the tenant does not have the one that `shares_budget_with` names.
        StateConflict: There is nothing to confirm, it was confirmed with another budget, or the records have a budget
            already, another than the one named.
        InsufficientStorage: A disk is full.
        StoreUnavailable: Disk or database did not take it.
    """
    folder = records_folder(settings.data_dir) / dataset_id
    with translated(_NOT_KEPT), _alone_with(folder):
        upload = uploads.get(database, dataset_id)
        form = _confirmable(upload, budget)
        if upload.state is DatasetState.READY:
            return
        try:
            _open(database, settings, upload, form, Reading.of_upload(upload))
        except BaseException:
            _discard_unless_kept(database, settings, folder)
            raise


def forget(
    database: Database, settings: Settings, dataset_id: str, settle: Callable[[Session], None] = lambda _session: None
) -> None:
    """Delete a data set, or an upload that is none yet, in the database, and note its files to be removed. Repeatable.

    Args:
        settle: Called in the transaction that does so, and by no other.

    Raises:
        StateConflict: A job on it has not ended.
    """
    opened = views.get(database, dataset_id).contents is not None
    with nullcontext() if opened else _alone_with(records_folder(settings.data_dir) / dataset_id):
        if views.get(database, dataset_id).contents is None:
            uploads.delete(database, dataset_id, settle)
        else:
            datasets.delete(database, dataset_id, settle)
            uploads.delete(database, dataset_id)


def forget_expired(database: Database, settings: Settings) -> None:
    """Forget uploads that waited too long for their confirmation, with their reports."""
    now = read_clock(database)
    for upload in uploads.in_state(database, DatasetState.REVIEW):
        review = Reading.of_upload(upload).review
        if review is None or review.expires_at is None or review.expires_at > now:
            continue
        # Confirmed or deleted a moment ago: then there is nothing to remove.
        with _alone_with(records_folder(settings.data_dir) / upload.dataset_id), suppress(StateConflict):
            uploads.delete(database, upload.dataset_id)


def remove_unregistered(database: Database, settings: Settings) -> None:
    """Remove records that a killed process left and that belong to nothing.

    Leaves records alone while any process is reading an upload.
    """
    folder = records_folder(settings.data_dir)
    with suppress(BlockingIOError), lock_folder(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in folder.iterdir():
            # An unfinished folder is named `.ds_…-…` until it is complete.
            if path.name.startswith((".ds_", "ds_")) and not _is_kept(database, path.name, here=True):
                shutil.rmtree(path, ignore_errors=True)
        RecordStore(settings).remove_unregistered(partial(_is_kept, database), read_clock(database))


def _check_bytes(database: Database, settings: Settings, upload: StoredUpload) -> None:
    """Refuse records that lie decoded in their folder, beside which the tenant has more than it may.

    Raises:
        QuotaExceeded: It has.
    """

    def measure(dataset_ids: Collection[str]) -> int:
        return upload_room.measure_records(settings.data_dir, {*dataset_ids, upload.dataset_id})

    with database.transaction() as session:
        quotas.check_bytes(session, quotas.find_tenant(session, upload.key_id), measure)


def _reviewed(decoded: Decoded, form: DatasetForm, expires_at: datetime) -> dict[str, Any]:
    review = ClassReview.from_counts(
        _declared(decoded.upload.schema, form), decoded.counts.for_owner(), decoded.notices, expires_at
    )
    return Reading.from_decoded(decoded, review).model_dump(mode="json")


def _declared(schema: Schema, form: DatasetForm) -> Schema:
    declared = {"records_are_public": bool(form.public_records), "public_license": form.public_license or ""}
    return schema.model_copy(update=declared)


def _confirmable(upload: StoredUpload, budget: BudgetForm) -> DatasetForm:
    """Return what an upload is confirmed with, or was before with the same budget."""
    if upload.state not in (DatasetState.REVIEW, DatasetState.READY):
        raise StateConflict(f"There is nothing to confirm: the upload is {upload.state}.")
    declared = DatasetForm.model_validate(upload.form)
    confirmed = declared.with_budget(budget)
    if upload.state is DatasetState.READY and confirmed != declared:
        raise StateConflict("The class names were confirmed before, and the budget was opened as it was named then.")
    return confirmed


def _open(database: Database, settings: Settings, upload: StoredUpload, form: DatasetForm, reading: Reading) -> None:
    """Create the data set of an upload whose records lie decoded in its folder."""
    folder, records = records_folder(settings.data_dir) / upload.dataset_id, RecordStore(settings)
    # The partition key is drawn by the store and never written beside the records.
    dataset = load_dataset(folder)
    records_path = records.keep(folder)
    links = Notices()

    def settle(session: Session, stored: StoredDataset) -> None:
        ready = reading.ready(links.collected(), uploads.find_joined(session, stored.id, stored.known_records))
        declared = form.model_dump(mode="json", exclude_none=True)
        uploads.settle(session, upload, DatasetState.READY, ready.model_dump(mode="json"), declared)

    datasets.create(
        database,
        dataset_id=upload.dataset_id,
        name=form.name or upload.dataset_id,
        schema=_declared(dataset.schema, form),
        images=dataset.train.images,
        unit_ids=dataset.train.units,
        format=reading.format,
        has_test=dataset.test is not None,
        records_path=records_path,
        epsilon=form.epsilon,
        delta=form.delta,
        shares_budget_with=form.shares_budget_with,
        tenant_id=keys.get(database, upload.key_id).tenant_id,
        notices=links,
        settle=settle,
    )
    if records_path != str(folder):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _alone_with(folder: Path) -> Iterator[None]:
    """Within the block, nobody else confirms or removes the upload whose records lie in this folder, if any do."""
    with ExitStack() as held:
        # A network file system may lock no folders: then the transaction decides, and the loser has to look again.
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _discard_unless_kept(database: Database, settings: Settings, folder: Path) -> None:
    """Remove records of which nothing came; while the database does not say so, the next start does it."""
    with suppress(StoreUnavailable):
        if not _is_kept(database, folder.name):
            RecordStore(settings).discard(folder)


def _is_kept(database: Database, dataset_id: str, *, here: bool = False) -> bool:
    """Return True if records of this id are in use: anywhere, or as files of this machine."""
    try:
        upload = views.get(database, dataset_id)
    except NotFound:
        return False
    moved = here and upload.contents is not None and RecordStore.is_remote(upload.contents.records_path)
    return upload.state in (DatasetState.READY, DatasetState.REVIEW) and not moved


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """The one place that the process which reads the file can write to; on the same disk as the records."""
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent, ignore_cleanup_errors=True) as name:
        yield Path(name)
