"""What a job pays for a figure on another data set, from the account of that data set.

A measurement is a row of `jobs` under a lease from its first moment: reserved, charged, drawn and ended by the worker
of the job that it measures, within moments. It is never in the queue. If its worker dies, the lease runs out and the
row ends as failed; what was charged stays charged, and a stored sum is used again.
"""

from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from datalens_service.errors import NotFound, StateConflict
from datalens_service.privacy.randomness import Integers
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger import aggregates, ledger
from datalens_service.store.ledger.recovery import check_log, in_step_with_log
from datalens_service.store.tables import AggregateRow, DatasetRow, JobRow

# A measurement releases one sum.
_STEP = 0


def begin(database: Database, measured: Job, dataset_id: str, units: int, lease: Lease) -> Lease:
    """Reserve what a figure costs and hold it, in one transaction."""

    def reserve(session: Session) -> Lease:
        dataset = session.get(DatasetRow, dataset_id)
        if dataset is None:
            raise NotFound("There is no such data set.")
        account = ledger.lock_account(session, dataset.account_id)
        session.refresh(dataset)
        if dataset.state != "ready":
            raise StateConflict("The data set that was set aside was deleted.")
        check_log(database, account)
        now = read_database_clock(session)
        row = _row(dataset, measured, lease, now)
        session.add(row)
        ledger.reserve(session, account, row, units)
        return Lease(row.id, row.lease_token, lease.owner, lease.seconds, _until(lease, now))

    return in_step_with_log(database, reserve)


def replay(database: Database, measured_job_id: str, dataset_id: str) -> Integers | None:
    """The noisy sum that a measurement of this job on this data set stored, or None. Reads only: it needs no lease."""
    stored = exists().where(AggregateRow.job_id == JobRow.id, AggregateRow.step == _STEP)
    query = select(JobRow.id).where(JobRow.measured_job_id == measured_job_id, JobRow.dataset_id == dataset_id, stored)
    with database.session() as session:
        earliest = session.scalars(query.order_by(JobRow.created_at, JobRow.id).limit(1)).one_or_none()
        return None if earliest is None else aggregates.replay(session, earliest, _STEP)


def _row(dataset: DatasetRow, measured: Job, lease: Lease, now: datetime) -> JobRow:
    measurement_id = f"job_{uuid4().hex}"
    return JobRow(
        id=measurement_id,
        reservation=ledger.new_reservation(measurement_id, dataset.account_id, "measurement"),
        tenant_id=dataset.tenant_id,
        account_id=dataset.account_id,
        dataset_id=dataset.id,
        state=JobState.RUNNING,
        spec=measured.spec,
        result=measured.result,
        price=measured.price,
        request_fingerprint="0" * 64,
        measured_job_id=measured.id,
        lease_token=1,
        lease_owner=lease.owner,
        lease_until=_until(lease, now),
        attempts=1,
        # A lost worker ends it: nobody else may take it up.
        max_attempts=1,
        progress_maximum=1,
        created_at=now,
        started_at=now,
    )


def _until(lease: Lease, now: datetime) -> datetime:
    return now + timedelta(seconds=lease.seconds)
