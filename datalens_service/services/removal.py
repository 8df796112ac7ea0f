"""Removes what has expired or is kept no longer, tenants that leave, and files that no row names: the one loop for all.

Any API process does it, and several at once do no harm: whatever is removed is decided in a transaction, by the clock
of the database, and noted in the journal there. A process that is killed leaves nothing half-removed: rows go in one
transaction, which notes their files (`store/removals.py`), and the next turn goes on.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.base import logs
from datalens_service.base.errors import NotFound, StateConflict, StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.services import due, generator_import, ingestion, predictions, removed_files
from datalens_service.services.due import Due
from datalens_service.store.access import access_log, browser_sessions, retention
from datalens_service.store.access.retention import Retention
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.datasets import datasets, results, upload_room, upload_sessions, uploads, views
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.datasets.upload_sessions import partial_files
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.jobs import released_models
from datalens_service.store.schema.tables import DatasetRow, IntakeRow, JobRow

ACTOR: Final = "retention"
"""Stands in the journal for a policy."""
NOW: Final = timedelta(0)
_TURN_SECONDS: Final = 30.0
_log = structlog.get_logger("datalens.removal")


Step = Callable[[Database, ArtifactStore, Settings], object]


class Remover:
    """A thread of the API that removes.

    Args:
        further: Steps of each turn beside those of this module.
    """

    def __init__(self, database: Database, artifacts: ArtifactStore, settings: Settings, *further: Step) -> None:
        self._database, self._artifacts, self._settings = database, artifacts, settings
        self._steps = (remove_expired, remove_due, *further, removed_files.remove_noted)
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="remover", daemon=True)

    def start(self) -> None:
        """Begin to remove, turn by turn."""
        self._thread.start()

    def wake(self) -> None:
        """Have the next turn begin at once."""
        self._wanted.set()

    def stop(self) -> None:
        """End; what is not removed yet is removed when the service has started again."""
        self._stopping.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.clear()
            for step in self._steps:
                try:
                    step(self._database, self._artifacts, self._settings)
                except StoreUnavailable as error:
                    _log.error("not everything is removed", problem=error.slug)
                except Exception as error:  # noqa: BLE001 - the thread must outlive what nobody meant
                    _log.error("unexpected", **logs.outline(error))
            self._wanted.wait(_TURN_SECONDS)


def remove_leftovers(database: Database, artifacts: ArtifactStore, settings: Settings) -> None:
    """Remove what killed processes left on this machine, when the service starts."""
    upload_room.remove_abandoned(settings.data_dir)
    predictions.remove_abandoned(settings.data_dir)
    ingestion.remove_unregistered(database, settings)
    generator_import.remove_unregistered(database, settings.data_dir)
    with suppress(StoreUnavailable):
        removed_files.remove_noted(database, artifacts, settings)


def remove_expired(database: Database, _artifacts: ArtifactStore, settings: Settings) -> None:
    """Remove sessions and uploads whose time is over, and files of uploads that were read."""
    browser_sessions.remove_expired(database)
    upload_sessions.remove_expired(database)
    ingestion.forget_expired(database, settings)
    files = set(partial_files(settings.data_dir).glob("upl_*"))
    # Read after the files: what is new by then is not among them.
    waiting = uploads.in_state(database, DatasetState.VALIDATING)
    known_names = upload_sessions.read_lengths(database).keys() | {one.upload_id for one in waiting}
    for path in files:
        if path.name not in known_names:
            path.unlink(missing_ok=True)


def preview(
    database: Database, tenant_ids: list[str], until: timedelta, policy: Retention | None = None
) -> tuple[Due, ...]:
    """Return what goes in tenants until some time from now, soonest first; nothing is removed.

    Args:
        policy: A policy to be tried; None takes those that are set.
    """
    with database.session() as session:
        now = read_database_clock(session)
        found = [
            one
            for tenant_id in tenant_ids
            for one in due.list_due(
                session, tenant_id, policy or retention.read_effective(session, tenant_id), now + until
            )
        ]
    return tuple(sorted(found, key=lambda one: (one.at, one.kind, one.object_id or "")))


def remove_due(database: Database, artifacts: ArtifactStore, settings: Settings) -> int:
    """Remove what retention has come to, and return how many things and lines that were. Repeatable."""
    with database.session() as session:
        now = read_database_clock(session)
        policies = retention.list_effective(session)
        found = [
            (one, getattr(policy, one.kind))
            for tenant_id, policy in policies.items()
            for one in due.list_due(session, tenant_id, policy, now)
        ]
    return sum(_remove(database, settings, one, days, now) for one, days in found)


def remove_thing(
    database: Database, settings: Settings, kind: str, object_id: str, settle: Callable[[Session], None]
) -> bool:
    """Remove one thing in the database and note its files to be removed; False if it is needed, or gone.

    Args:
        settle: Called in the transaction that does so.
    """
    # Taken up by a job, or removed by somebody else, a moment ago: then the next turn looks again.
    with suppress(StateConflict, NotFound):
        if kind == "results" and object_id.startswith("gen_"):
            released_models.delete_imported(database, object_id, settle)
        elif kind == "results":
            results.forget(database, object_id, settle)
        else:
            ingestion.forget(database, settings, object_id, _sparing(kind, object_id, settle))
        return True
    return False


def _sparing(kind: str, object_id: str, settle: Callable[[Session], None]) -> Callable[[Session], None]:
    def spare(session: Session) -> None:
        if kind == "datasets" and datasets.find_reader(session, object_id) is not None:
            raise StateConflict("A job that is measured on this data set has not ended.")
        settle(session)

    return spare


def _remove(database: Database, settings: Settings, one: Due, days: int, now: datetime) -> int:
    detail = f"older than {days} days"
    if one.object_id is None:
        return _remove_lines(database, one, days, now)

    def settle(session: Session) -> None:
        _note(session, one, detail)

    return one.waits_for is None and remove_thing(database, settings, one.kind, one.object_id, settle)


def _remove_lines(database: Database, one: Due, days: int, now: datetime) -> int:
    before = due.cut(now, days)
    with database.transaction() as session:
        if one.kind == due.JOURNAL:
            count = access_log.shorten(session, one.tenant_id, before)
        else:
            statement = due.build_removal(one.kind, one.tenant_id, before)
            count = session.execute(statement).rowcount  # type: ignore[attr-defined]
        if count:
            _note(session, one, f"{count:,} from before {before.date()}, older than {days} days")
    return int(count)


def _note(session: Session, one: Due, detail: str) -> None:
    action = f"remove{one.kind.capitalize()}"
    access_log.append(session, one.tenant_id, actor=ACTOR, action=action, object_id=one.object_id, detail=detail)


def remove_dataset(database: Database, artifacts: ArtifactStore, settings: Settings, dataset_id: str) -> DatasetView:
    """Delete a data set, its records, its report and what its jobs made for the owner alone. Repeatable.

    What was spent on the records stays spent, and what was released stays released. An upload that is being read,
    waits for its confirmation or cannot be used goes as well.

    Raises:
        StateConflict: A job on it has not ended.
        StoreUnavailable: A file could not be removed; it is tried again.
    """
    ingestion.forget(database, settings, dataset_id)
    removed_files.remove_noted(database, artifacts, settings, _list_noted_paths(database, dataset_id))
    return views.get(database, dataset_id)


def _list_noted_paths(database: Database, dataset_id: str) -> set[str]:
    """List what files of a data set are noted by (`removals.py`)."""
    with database.session() as session:
        jobs = session.scalars(select(JobRow.id).where(JobRow.dataset_id == dataset_id)).all()
        records = session.scalars(select(DatasetRow.records_path).where(DatasetRow.id == dataset_id)).all()
        files = session.scalars(select(IntakeRow.upload_id).where(IntakeRow.dataset_id == dataset_id)).all()
    return {dataset_id, *jobs, *records, *filter(None, files)}
