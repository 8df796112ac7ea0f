"""What a job pays for a figure on another data set, from the account of that data set.

A measurement is a row of `jobs` under a lease from its first moment: reserved, charged, drawn and ended by the worker
of the job that it measures, within moments. It is never in the queue. If its worker dies, the lease runs out and the
row ends as failed; what was charged stays charged, and a stored sum is used again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from datalens_service.clock import utc_now
from datalens_service.errors import NotFound, StateConflict
from datalens_service.store.database import Database
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.recovery import check_log, in_step_with_log
from datalens_service.store.tables import AggregateRow, DatasetRow, JobRow


def begin(database: Database, measured: Job, dataset_id: str, units: int, lease: Lease) -> Lease:
    """Reserve what a figure costs and hold it, in one transaction.

    Args:
        database: Where.
        measured: The job whose generator is measured; its spec stands on the row, too.
        dataset_id: The data set that is read, and whose account pays.
        units: Ledger units of the figure.
        lease: Of the measured job; names the worker and how long silence is tolerated.

    Raises:
        BudgetExceeded: The account does not pay for it; nothing was kept.
        NotFound: No such data set.
        StateConflict: The data set was deleted.
        LedgerCorrupt: The account is frozen.
    """

    def reserve(session: Session) -> Lease:
        dataset = session.get(DatasetRow, dataset_id)
        if dataset is None:
            raise NotFound("There is no such data set.")
        account = ledger.lock_account(session, dataset.account_id)
        session.refresh(dataset)
        if dataset.state != "ready":
            raise StateConflict("The data set that was set aside was deleted.")
        check_log(database.log, account)
        row = _row(dataset, measured, lease)
        session.add(row)
        ledger.reserve(session, account, row, units)
        return Lease(row.id, row.lease_token, lease.owner, lease.seconds, _until(lease))

    return in_step_with_log(database, reserve)


def stored(database: Database, measured_job_id: str, dataset_id: str) -> str | None:
    """Id of a measurement of this job on this data set whose noisy sum is stored, or None."""
    kept = exists().where(AggregateRow.job_id == JobRow.id, AggregateRow.step == 0)
    query = select(JobRow.id).where(JobRow.measured_job_id == measured_job_id, JobRow.dataset_id == dataset_id, kept)
    with database.session() as session:
        return session.scalars(query.order_by(JobRow.created_at, JobRow.id).limit(1)).one_or_none()


def _row(dataset: DatasetRow, measured: Job, lease: Lease) -> JobRow:
    now = utc_now()
    return JobRow(
        id=f"job_{uuid4().hex}",
        account_id=dataset.account_id,
        dataset_id=dataset.id,
        state=JobState.RUNNING,
        spec=measured.spec,
        plan=measured.plan,
        idempotency_key=None,
        request_fingerprint="0" * 64,
        measured_job_id=measured.id,
        reserved_units=0,
        charged_units=0,
        settled=False,
        lease_token=1,
        lease_owner=lease.owner,
        lease_until=_until(lease),
        attempts=1,
        # A lost worker ends it: nobody else may take it up.
        max_attempts=1,
        cancel_requested=False,
        pause_requested=False,
        progress_value=0,
        progress_maximum=1,
        created_at=now,
        started_at=now,
    )


def _until(lease: Lease) -> datetime:
    return utc_now() + timedelta(seconds=lease.seconds)
