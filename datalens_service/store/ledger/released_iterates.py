"""Weights that a job keeps for individual ε: written in the transaction that drops the sums they follow from.

So a killed process loses none: an iterate can be computed again from stored sums, or it is here. They move into a file
when the job ends.
"""

import hashlib
import io

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from datalens_service.clock import utc_now
from datalens_service.errors import LedgerCorrupt
from datalens_service.store.tables import ReleasedIteratesRow


def add(session: Session, job_id: str, lease_token: int, step: int, iterates: NDArray[np.float32]) -> None:
    """Keep iterates; in the transaction of `released_states.advance`, which checks lease and step."""
    buffer = io.BytesIO()
    np.save(buffer, iterates, allow_pickle=False)
    payload = buffer.getvalue()
    digest = hashlib.sha256(payload).hexdigest()
    row = ReleasedIteratesRow(job_id=job_id, step=step, lease_token=lease_token, payload=payload, sha256=digest)
    row.created_at = utc_now()
    session.add(row)
    session.flush()


def read(session: Session, job_id: str) -> list[NDArray[np.float32]]:
    """All iterates of a job, in order, as they were given."""
    query = select(ReleasedIteratesRow).where(ReleasedIteratesRow.job_id == job_id).order_by(ReleasedIteratesRow.step)
    return [_array(row) for row in session.scalars(query)]


def discard(session: Session, job_id: str) -> None:
    """Drop those of a job that has ended."""
    session.execute(delete(ReleasedIteratesRow).where(ReleasedIteratesRow.job_id == job_id))


def _array(row: ReleasedIteratesRow) -> NDArray[np.float32]:
    if hashlib.sha256(row.payload).hexdigest() != row.sha256:
        raise LedgerCorrupt(f"The stored iterates of job {row.job_id} were altered; the job cannot go on.")
    array: NDArray[np.float32] = np.load(io.BytesIO(row.payload), allow_pickle=False)
    return array
