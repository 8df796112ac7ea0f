"""Removal of what a job left: files, model, noisy sums, findings. Its row stays, and so do its charges."""

from collections.abc import Callable

from sqlalchemy import delete, exists, select, update
from sqlalchemy.orm import Session

from datalens_service.base.errors import StateConflict
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.datasets import artifacts
from datalens_service.store.datasets.datasets import OPEN
from datalens_service.store.ledger import ledger
from datalens_service.store.schema.service_tables import ReleasedModelRow
from datalens_service.store.schema.tables import (
    AggregateRow,
    JobRow,
    PrivacyAuditRow,
    ReleasedIteratesRow,
    ReleasedStateRow,
)

_SUMS = (AggregateRow, ReleasedStateRow, ReleasedIteratesRow)


def forget(database: Database, job_id: str, settle: Callable[[Session], None]) -> None:
    """Forget the results of a job or audit, and note its files to be removed. Repeatable.

    Args:
        settle: Called in the transaction that does so, and by no other.

    Raises:
        StateConflict: It has not ended, or another that needs them has not.
    """
    with database.transaction() as session:
        row = ledger.job_row(session, job_id, lock=True)
        if row.results_removed_at is not None:
            return
        if row.finished_at is None or find_reader(session, job_id) is not None:
            raise StateConflict("The results are still needed; wait until the job that reads them has ended.")
        row.results_removed_at = read_database_clock(session)
        session.execute(delete(ReleasedModelRow).where(ReleasedModelRow.job_id == job_id))
        session.execute(update(PrivacyAuditRow).where(PrivacyAuditRow.job_id == job_id).values(result=None))
        # What was paid for a data set that was set aside is replayed for other jobs.
        if row.measured_job_id is None:
            for sums in _SUMS:
                session.execute(delete(sums).where(sums.job_id == job_id))
        artifacts.forget_all(session, job_id)
        settle(session)


def find_reader(session: Session, job_id: str) -> str | None:
    """Return the id of an audit that attacks the model of a job, or of a measurement for it, that has not ended."""
    attacks = exists().where(PrivacyAuditRow.job_id == JobRow.id, PrivacyAuditRow.attacked_job_id == job_id)
    query = select(JobRow.id).where(JobRow.state.in_(OPEN), attacks | (JobRow.measured_job_id == job_id))
    return session.scalar(query.limit(1))
