"""Reads finished uploads one after the other, beside the requests, until the service stops.

The database says what is to be done and the lock on a file who does it: a service that is killed leaves the upload to
the next one that starts or looks. What comes of it goes to the owner's report and nowhere else.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import structlog

from datalens_service import logs
from datalens_service.data.notices import Notice
from datalens_service.data.sandbox.decode import Counts
from datalens_service.data.sandbox.sandbox import Refused
from datalens_service.errors import DatalensError, NotFound, StoreUnavailable
from datalens_service.services import ingestion as registering
from datalens_service.services.dataset_declaration import DatasetForm
from datalens_service.settings import Settings
from datalens_service.store.access import keys
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets, joining, upload_sessions, validations
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.datasets.joining import Joined
from datalens_service.store.datasets.upload_sessions import partial_files
from datalens_service.store.datasets.validations import Validation

_LOOK_SECONDS: Final = 5.0
_log = structlog.get_logger("datalens.validator")


class Validator:
    """A thread that turns finished uploads into data sets.

    Args:
        database: With the uploads that are to be read.
        settings: Folders, and limits of reading.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="validator", daemon=True)
        self._thread.start()

    def submitted(self) -> None:
        """There is something to do."""
        self._wanted.set()

    def stop(self) -> None:
        """End; an upload that is being read is read again when the service has started again."""
        self._stopping.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.clear()
            try:
                self._look()
            except StoreUnavailable as error:
                _log.error("database unavailable, no upload is read", detail=error.detail)
            except Exception as error:  # noqa: BLE001 - the thread must outlive what nobody meant
                _log.error("unexpected", **logs.outline(error))
            self._wanted.wait(_LOOK_SECONDS)

    def _look(self) -> None:
        remove_strays(self._database, self._settings.data_dir)
        for waiting in validations.validating(self._database):
            if self._stopping.is_set():
                return
            with suppress(BlockingIOError, FileNotFoundError), _locked(self._path(waiting)):
                self._validate(waiting)

    def _validate(self, waiting: Validation) -> None:
        """Read one upload; a failure that is not the file's leaves it for later."""
        state, report = self._outcome(waiting)
        validations.finish(self._database, waiting.dataset_id, state, report)
        if validations.get(self._database, waiting.dataset_id).state is DatasetState.DELETED:
            self._undo(waiting.dataset_id)
        self._path(waiting).unlink(missing_ok=True)

    def _outcome(self, waiting: Validation) -> tuple[DatasetState, dict[str, Any]]:
        with suppress(NotFound):
            # Killed between registering and noting it.
            datasets.get(self._database, waiting.dataset_id)
            return DatasetState.READY, ready_report(None, (), joining.joined(self._database, waiting.dataset_id))
        form = DatasetForm.model_validate(waiting.form)
        try:
            registered = registering.register(
                self._database,
                self._settings,
                self._path(waiting),
                form,
                tenant_id=keys.get(self._database, waiting.key_id).tenant_id,
                dataset_id=waiting.dataset_id,
                stopping=self._stopping.is_set,
            )
        except StoreUnavailable:
            raise
        except DatalensError as error:
            return DatasetState.INVALID, invalid_report(error)
        return DatasetState.READY, ready_report(registered.counts, registered.notices, registered.joined)

    def _undo(self, dataset_id: str) -> None:
        """It was deleted while it was read."""
        with suppress(NotFound):
            registering.remove_records(self._settings, datasets.delete(self._database, dataset_id))

    def _path(self, waiting: Validation) -> Path:
        return partial_files(self._settings.data_dir) / (waiting.upload_id or "")


def ready_report(counts: Counts | None, notices: Sequence[Notice], joined: Joined | None) -> dict[str, Any]:
    """What the owner may know of records that can be used."""
    return {
        "counts": counts and counts.model_dump(),
        "notices": [notice.model_dump(mode="json") for notice in notices],
        "joined": joined and joined.model_dump(mode="json"),
    }


def invalid_report(error: DatalensError) -> dict[str, Any]:
    """What the owner may know of an upload that cannot be used."""
    report: dict[str, Any] = {"code": error.slug, "detail": error.text}
    return report | error.validation_errors if isinstance(error, Refused) else report


def remove_strays(database: Database, data_dir: Path) -> None:
    """Remove files of uploads that expired, and of those that were read."""
    upload_sessions.remove_expired(database)
    folder = partial_files(data_dir)
    files = set(folder.glob("upl_*"))
    # Read after the files: what is new by then is not among them.
    known_names = upload_sessions.known(database) | {waiting.upload_id for waiting in validations.validating(database)}
    for path in files:
        if path.name not in known_names:
            path.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
