"""Names, tags and notes that people give to jobs and datasets: for finding them, without any effect on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from datalens_service.errors import NotFound
from datalens_service.store.database import Database
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.tables import DatasetRow, JobRow

Row = TypeVar("Row", DatasetRow, JobRow)


def label_job(database: Database, job_id: str, changes: Mapping[str, Any]) -> Job:
    """Give a job another name, other tags or other notes.

    Args:
        database: Where.
        job_id: Which.
        changes: New values of `name`, `tags` and `notes`; what is left out stays.

    Raises:
        NotFound: No such job.
    """
    with database.transaction() as session:
        return Job.of(_changed(session, JobRow, job_id, changes, "There is no such job."))


def label_dataset(database: Database, dataset_id: str, changes: Mapping[str, Any]) -> StoredDataset:
    """The same of a dataset, deleted ones included.

    Raises:
        NotFound: No such dataset, or its upload is not ready.
    """
    with database.transaction() as session:
        return StoredDataset.of(_changed(session, DatasetRow, dataset_id, changes, "There is no such dataset."))


def _changed(session: Session, kind: type[Row], identifier: str, changes: Mapping[str, Any], missing: str) -> Row:
    row = session.get(kind, identifier, with_for_update={"of": kind})
    if row is None:
        raise NotFound(missing)
    for name, value in changes.items():
        setattr(row, name, value)
    session.flush()
    return row
