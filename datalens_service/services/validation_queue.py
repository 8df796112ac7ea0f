"""Reads finished uploads one after the other, beside the requests, until the service stops.

The database says what is to be done and the lock on a file who does it: a service that is killed leaves the upload to
the next one that starts or looks. What comes of it goes to the owner's report and nowhere else.
"""

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from datalens_service.base import logs
from datalens_service.base.errors import DatalensError, StateConflict, StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.services import ingestion
from datalens_service.services.upload_reports import invalid_report
from datalens_service.store.database import Database
from datalens_service.store.datasets import uploads
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.datasets.upload_sessions import partial_files
from datalens_service.store.datasets.uploads import StoredUpload

_LOOK_SECONDS: Final = 5.0
_log = structlog.get_logger("datalens.validator")


class Validator:
    """A thread that turns finished uploads into data sets."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="validator", daemon=True)
        self._thread.start()

    def submitted(self) -> None:
        """Wake the loop, as there is something to do."""
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
        for waiting in uploads.in_state(self._database, DatasetState.VALIDATING):
            if self._stopping.is_set():
                return
            try:
                with suppress(BlockingIOError, FileNotFoundError), _locked(self._path(waiting)):
                    self._validate(waiting)
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - one upload holds up no other
                _log.error("unexpected", **logs.outline(error))

    def _validate(self, waiting: StoredUpload) -> None:
        """Read one upload; a failure that is not the file's leaves it for later."""
        path = self._path(waiting)
        try:
            ingestion.receive(self._database, self._settings, path, waiting, stopping=self._stopping.is_set)
        except StoreUnavailable:
            raise
        except DatalensError as error:
            # Unless it was deleted while it was read.
            with suppress(StateConflict):
                uploads.note(self._database, waiting, DatasetState.INVALID, invalid_report(error))
        path.unlink(missing_ok=True)

    def _path(self, waiting: StoredUpload) -> Path:
        return partial_files(self._settings.data_dir) / (waiting.upload_id or "")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
