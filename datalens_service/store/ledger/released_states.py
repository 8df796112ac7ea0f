"""Replaces a job's first noisy sums by a function of them, which is as public as they are.

Hundreds of sums of a whole network would fill the database; what the next step needs is one network.

Weights that a job keeps for individual ε are written in the transaction that drops the sums they follow from: an
iterate can be computed again from stored sums, or it is here. They move into a file when the job ends.
"""

import hashlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import LedgerCorrupt, StateConflict
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.ledger import ledger
from datalens_service.store.schema.tables import AggregateRow, ReleasedIteratesRow, ReleasedStateRow

State = dict[str, NDArray[Any]]


def advance(session: Session, job_id: str, lease_token: int, step: int, state: State) -> None:
    """Put `state` in the place of all sums before `step`.

    Raises:
        StateConflict: The sum of the step before is not stored, or a later state is.
    """
    _, job = ledger.lock(session, job_id)
    ledger.check_lease(job, lease_token)
    row = session.get(ReleasedStateRow, job_id, populate_existing=True)
    if session.get(AggregateRow, (job_id, step - 1)) is None or (row is not None and row.step >= step):
        raise StateConflict(f"The state before step {step} does not follow what is stored.")
    payload = _packed(state)
    if row is None:
        row = ReleasedStateRow(job_id=job_id)
        session.add(row)
    row.step, row.lease_token, row.payload = step, lease_token, payload
    row.sha256, row.created_at = hashlib.sha256(payload).hexdigest(), read_database_clock(session)
    session.flush()
    session.execute(delete(AggregateRow).where(AggregateRow.job_id == job_id, AggregateRow.step < step))


def latest(session: Session, job_id: str) -> tuple[int, State] | None:
    """The next step after the state, and the state; None if there is none."""
    row = session.get(ReleasedStateRow, job_id)
    if row is None:
        return None
    if hashlib.sha256(row.payload).hexdigest() != row.sha256:
        raise LedgerCorrupt(f"The stored state of job {job_id} was altered; the job cannot go on.")
    with np.load(io.BytesIO(row.payload), allow_pickle=False) as arrays:
        return row.step, {name: arrays[name] for name in arrays.files}


def _packed(state: State) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **state)
    return buffer.getvalue()


def add_iterates(session: Session, job_id: str, lease_token: int, step: int, iterates: NDArray[np.float32]) -> None:
    """Keep iterates; in the transaction of `advance`, which checks lease and step."""
    buffer = io.BytesIO()
    np.save(buffer, iterates, allow_pickle=False)
    payload = buffer.getvalue()
    digest = hashlib.sha256(payload).hexdigest()
    row = ReleasedIteratesRow(job_id=job_id, step=step, lease_token=lease_token, payload=payload, sha256=digest)
    session.add(row)
    session.flush()


def read_iterates(session: Session, job_id: str) -> list[NDArray[np.float32]]:
    """Return all iterates of a job, in order, as they were given."""
    query = select(ReleasedIteratesRow).where(ReleasedIteratesRow.job_id == job_id).order_by(ReleasedIteratesRow.step)
    return [_read_array(row) for row in session.scalars(query)]


def discard_iterates(session: Session, job_id: str) -> None:
    """Drop those of a job that has ended."""
    session.execute(delete(ReleasedIteratesRow).where(ReleasedIteratesRow.job_id == job_id))


def _read_array(row: ReleasedIteratesRow) -> NDArray[np.float32]:
    if hashlib.sha256(row.payload).hexdigest() != row.sha256:
        raise LedgerCorrupt(f"The stored iterates of job {row.job_id} were altered; the job cannot go on.")
    array: NDArray[np.float32] = np.load(io.BytesIO(row.payload), allow_pickle=False)
    return array
