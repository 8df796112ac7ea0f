"""Names, tags and notes that people give to jobs and datasets: for finding them, without any effect on them."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from datalens_service.store.database import Database
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger import ledger
from datalens_service.store.schema.tables import DatasetRow, JobRow
from datalens_service.store.unopened_uploads import explain_absence


def label_job(database: Database, job_id: str, changes: Mapping[str, Any]) -> Job:
    """Give a job another name, other tags or other notes.

    Args:
        changes: New values of `name`, `tags` and `notes`; what is left out stays.
    """
    with database.transaction() as session:
        row = ledger.job_row(session, job_id, lock=True)
        _change(session, row, changes)
        return Job.from_row(row)


def label_dataset(database: Database, dataset_id: str, changes: Mapping[str, Any]) -> StoredDataset:
    """The same of a dataset, deleted ones included."""
    with database.transaction() as session:
        row = session.get(DatasetRow, dataset_id, with_for_update={"of": DatasetRow})
        if row is None:
            raise explain_absence(session, dataset_id)
        _change(session, row, changes)
        return StoredDataset.from_row(row)


def _change(session: Session, row: DatasetRow | JobRow, changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        setattr(row, name, value)
    session.flush()
