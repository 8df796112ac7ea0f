"""Noisy sums, kept per (job, step): what a resumed job replays instead of drawing again.

They are already paid for and noisy, so public. int64 as `.npy` bytes, compressed if that is smaller, with the
SHA-256 of the uncompressed bytes.
"""

import hashlib
import io
import zlib

import numpy as np
from sqlalchemy import Exists, exists, func, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import InvalidInput, LedgerCorrupt, StateConflict
from datalens_service.privacy.randomness import Integers
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.ledger import ledger
from datalens_service.store.schema.tables import AggregateRow, LedgerEntryRow, ReleasedStateRow

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
    raw = _unpacked(row)
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
    buffer = io.BytesIO()
    np.save(buffer, noisy, allow_pickle=False)
    raw = buffer.getvalue()
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


def _unpacked(row: AggregateRow) -> bytes | None:
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
