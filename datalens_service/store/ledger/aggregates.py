"""Noisy sums, kept per (job, step): what a resumed job replays instead of drawing again.

They are already paid for and noisy, so public. int64 as `.npy` bytes, compressed if that is smaller, with the
SHA-256 of the uncompressed bytes.

Hundreds of sums of a whole network would fill the database, and what the next step needs is one network: a job may
replace its first sums by a function of them, which is as public as they are. Weights that a job keeps for individual ε
are written in the transaction that drops the sums they follow from: an iterate can be computed again from stored sums,
or it is here. They move into a file when the job ends.
"""

import hashlib
import io
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Exists, delete, exists, func, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import InvalidInput, LedgerCorrupt, StateConflict
from datalens_service.privacy.randomness import Integers
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.ledger import ledger
from datalens_service.store.schema.tables import AggregateRow, LedgerEntryRow, ReleasedIteratesRow, ReleasedStateRow

_PLAIN = "npy"
_COMPRESSED = "npy+zlib"
# Noise hardly compresses further; the leading bytes of int64 do at once.
_LEVEL = 1


def store_aggregate(session: Session, job_id: str, lease_token: int, step: int, noisy: Integers) -> None:
    """Keep the noisy sum of a charged step; the job has made progress.

    Raises:
        StateConflict: The step is stored already, or was not charged under this lease.
        InvalidInput: Not an int64 array.
    """
    _, job = ledger.lock(session, job_id)
    ledger.check_lease(job, lease_token)
    if session.get(AggregateRow, (job_id, step)) is not None:
        raise StateConflict(f"Step {step} is stored already.")
    if not session.scalar(select(_charged(job_id, lease_token, step))):
        raise StateConflict(f"Step {step} was not charged under this lease, so its sum cannot be kept.")
    session.add(_row(job_id, lease_token, step, noisy))
    job.attempts = 0
    session.flush()


def replay(session: Session, job_id: str, step: int) -> Integers | None:
    """The noisy sum stored under `step`, or None."""
    row = session.get(AggregateRow, (job_id, step))
    if row is None:
        return None
    raw = _unpack_sum(row)
    if raw is None or hashlib.sha256(raw).hexdigest() != row.sha256:
        raise LedgerCorrupt(f"The stored sum of step {step} of job {job_id} was altered; the job cannot go on.")
    array: Integers = np.load(io.BytesIO(raw), allow_pickle=False)
    return array


def _charged(job_id: str, lease_token: int, step: int) -> Exists:
    return exists().where(
        LedgerEntryRow.kind == EntryKind.CHARGE,
        LedgerEntryRow.job_id == job_id,
        LedgerEntryRow.step == step,
        LedgerEntryRow.lease_token == lease_token,
    )


def _row(job_id: str, lease_token: int, step: int, noisy: Integers) -> AggregateRow:
    if noisy.dtype != np.int64:
        raise InvalidInput("A noisy sum must be an int64 array.")
    raw = _to_npy(noisy)
    packed = zlib.compress(raw, _LEVEL)
    smaller = len(packed) < len(raw)
    return AggregateRow(
        job_id=job_id,
        step=step,
        lease_token=lease_token,
        encoding=_COMPRESSED if smaller else _PLAIN,
        payload=packed if smaller else raw,
        sha256=hashlib.sha256(raw).hexdigest(),
    )


def _to_npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _unpack_sum(row: AggregateRow) -> bytes | None:
    """The `.npy` bytes, None if they cannot be unpacked."""
    try:
        return zlib.decompress(row.payload) if row.encoding == _COMPRESSED else row.payload
    except zlib.error:
        return None


def is_draw_pending(session: Session, job_id: str, lease_token: int) -> bool:
    """Return True if the last charge under a lease has no stored sum yet: who dies now pays for this step again."""
    charged = select(func.max(LedgerEntryRow.step)).where(
        LedgerEntryRow.job_id == job_id, LedgerEntryRow.lease_token == lease_token
    )
    step = session.scalar(charged)
    if step is None or session.get(AggregateRow, (job_id, step)) is not None:
        return False
    state = session.get(ReleasedStateRow, job_id)
    return state is None or state.step <= step


State = dict[str, NDArray[Any]]


def replace_by_state(session: Session, job_id: str, lease_token: int, step: int, state: State) -> None:
    """Put `state` in the place of all sums before `step`.

    Raises:
        StateConflict: The sum of the step before is not stored, or a later state is.
    """
    _, job = ledger.lock(session, job_id)
    ledger.check_lease(job, lease_token)
    row = session.get(ReleasedStateRow, job_id, populate_existing=True)
    if session.get(AggregateRow, (job_id, step - 1)) is None or (row is not None and row.step >= step):
        raise StateConflict(f"The state before step {step} does not follow what is stored.")
    payload = _pack_state(state)
    if row is None:
        row = ReleasedStateRow(job_id=job_id)
        session.add(row)
    row.step, row.lease_token, row.payload = step, lease_token, payload
    row.sha256, row.created_at = hashlib.sha256(payload).hexdigest(), read_database_clock(session)
    session.flush()
    session.execute(delete(AggregateRow).where(AggregateRow.job_id == job_id, AggregateRow.step < step))


def read_state(session: Session, job_id: str) -> tuple[int, State] | None:
    """Return the step that follows the state, and the state; None if there is none."""
    row = session.get(ReleasedStateRow, job_id)
    if row is None:
        return None
    if hashlib.sha256(row.payload).hexdigest() != row.sha256:
        raise LedgerCorrupt(f"The stored state of job {job_id} was altered; the job cannot go on.")
    with np.load(io.BytesIO(row.payload), allow_pickle=False) as arrays:
        return row.step, {name: arrays[name] for name in arrays.files}


def _pack_state(state: State) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **state)
    return buffer.getvalue()


def add_iterates(session: Session, job_id: str, lease_token: int, step: int, iterates: NDArray[np.float32]) -> None:
    """Keep iterates; in the transaction of `replace_by_state`, which checks lease and step."""
    payload = _to_npy(iterates)
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
