"""Pays for a job's figure on another data set, from the account of that data set.

A measurement is a row of `jobs` under a lease from its first moment: reserved, charged, drawn and ended by the worker
of the job that it measures, within moments. It is never in the queue. If its worker dies, the lease runs out and the
row ends as failed; what was charged stays charged, and a stored sum is used again.
"""

from datetime import timedelta

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import StateConflict
from datalens_service.privacy.randomness import Integers
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.jobs.jobs import Job, JobState, lock_dataset, new_row
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger import aggregates, ledger
from datalens_service.store.ledger.recovery import check_log, in_step_with_log
from datalens_service.store.schema.tables import AggregateRow, JobRow

# A measurement releases one sum.
_STEP = 0


def begin(database: Database, measured: Job, dataset_id: str, ledger_units: int, lease: Lease) -> Lease:
    """Reserve what a figure costs and hold it, in one transaction."""

    def reserve(session: Session) -> Lease:
        dataset, account = lock_dataset(session, dataset_id)
        if dataset.state != "ready":
            raise StateConflict("The data set that was set aside was deleted.")
        check_log(database, account)
        now = read_database_clock(session)
        until = now + timedelta(seconds=lease.seconds)
        row = new_row(dataset, "job", "measurement", spec=measured.spec, result=measured.result, price=measured.price)
        row.request_fingerprint, row.measured_job_id, row.progress_maximum = "0" * 64, measured.id, 1
        row.state, row.lease_token, row.lease_owner, row.lease_until = JobState.RUNNING, 1, lease.owner, until
        # A lost worker ends it: nobody else may take it up.
        row.attempts = row.max_attempts = 1
        row.created_at = row.started_at = now
        # Whoever submitted the job pays for its figures, too.
        row.submitted_by = None if measured.submitted_by is None else measured.submitted_by.id
        session.add(row)
        ledger.reserve(session, account, row, ledger_units)
        return Lease(row.id, row.lease_token, lease.owner, lease.seconds, until)

    return in_step_with_log(database, reserve)


def replay(database: Database, measured_job_id: str, dataset_id: str) -> Integers | None:
    """The noisy sum that a measurement of this job on this data set stored, or None. Reads only: it needs no lease."""
    stored = exists().where(AggregateRow.job_id == JobRow.id, AggregateRow.step == _STEP)
    query = select(JobRow.id).where(JobRow.measured_job_id == measured_job_id, JobRow.dataset_id == dataset_id, stored)
    with database.session() as session:
        earliest = session.scalars(query.order_by(JobRow.created_at, JobRow.id).limit(1)).one_or_none()
        return None if earliest is None else aggregates.replay(session, earliest, _STEP)
