"""Removes files whose rows are gone: at once by whoever deletes, and again by the service until it has worked."""

from collections.abc import Collection

import structlog

from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.services import generator_import
from datalens_service.store import removals
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.record_files import RecordStore
from datalens_service.store.datasets.upload_sessions import partial_files
from datalens_service.store.disk import translated
from datalens_service.store.removals import Removal, RemovalKind

_log = structlog.get_logger("datalens.removal")
_NOT_REMOVED = "Files could not be removed; look at the disk of ⟦DATALENS_DATA_DIR⟧."


def remove_noted(
    database: Database, artifacts: ArtifactStore, settings: Settings, paths: Collection[str] | None = None
) -> None:
    """Remove files that are noted to be removed. Repeatable.

    Args:
        paths: Those of notes, as `RemovalKind` explains them; None removes all.

    Raises:
        StoreUnavailable: Some could not be removed; all others have been.
    """
    noted = [removal for removal in removals.list_noted(database) if paths is None or removal.path in paths]
    failures = list[StoreUnavailable]()
    for removal in noted:
        try:
            _remove(artifacts, settings, removal)
            removals.forget(database, removal)
        except StoreUnavailable as error:
            _log.error("files not removed", problem=error.slug)
            failures.append(error)
    if noted:
        artifacts.remove_copies()
    if failures:
        raise failures[0]


def _remove(artifacts: ArtifactStore, settings: Settings, removal: Removal) -> None:
    match removal.kind:
        case RemovalKind.RECORDS:
            RecordStore(settings).remove(removal.path)
        case RemovalKind.JOB_FILES:
            artifacts.remove_files(removal.path)
            _remove_made(settings, removal.path)
        case RemovalKind.UPLOAD:
            with translated(_NOT_REMOVED):
                (partial_files(settings.data_dir) / removal.path).unlink(missing_ok=True)
        case RemovalKind.GENERATOR:
            generator_import.remove_files(settings.data_dir, removal.path)
            _remove_made(settings, removal.path)


def _remove_made(settings: Settings, origin: str) -> None:
    """Remove files of images that were made from a model; those of one that is still there are made anew."""
    with translated(_NOT_REMOVED):
        for path in (settings.data_dir / "cache").glob(f"{origin}-*"):
            path.unlink(missing_ok=True)
