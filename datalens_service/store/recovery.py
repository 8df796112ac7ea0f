"""Start-up audit: does every account add up, and does it know every charge that the log outside knows?

A restored backup of the database has forgotten what was spent since; the log has not. Each charge that only the
log knows is booked again as `recovered`: out of its job's reservation as far as that goes, the rest out of what
is free. The same happens to a charge whose commit failed after its log line was written; that counts too much,
which is the safe side. An account that does not add up, or has no room for a lost charge, is frozen: nothing is
reserved or charged on it until a later start finds it in order. Lines that the log has lost are written again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.errors import LedgerCorrupt
from datalens_service.store import ledger
from datalens_service.store.chain import Entry, EntryKind
from datalens_service.store.database import Database
from datalens_service.store.mirror import LogLine
from datalens_service.store.tables import AccountRow, DatasetRow, JobRow, LedgerEntryRow
from datalens_service.store.verification import verify_account

_SPENDS = (EntryKind.CHARGE, EntryKind.RECOVERED)


def check_against_log(database: Database) -> tuple[str, ...]:
    """Audit every account; run once at the start of every process that serves or charges.

    Returns:
        Ids of the accounts that are frozen now.

    Raises:
        LedgerCorrupt: The log cannot be read, or names data sets this database does not have: it is not the
            database of this log, or a backup that has forgotten whose records they were. Nothing may start on it.
    """
    # The log first: a data set in it was committed before, so it is among those read next.
    lines = database.log.read() if database.log is not None else []
    with database.session() as session:
        account_ids = session.scalars(select(AccountRow.id).order_by(AccountRow.id)).all()
        _check_all_known(lines, set(session.scalars(select(DatasetRow.id))))
    grouped = _by_account(lines)
    frozen = [account_id for account_id in account_ids if not _audit(database, account_id, grouped[account_id])]
    _rewrite_lost_lines(database, lines)
    return tuple(frozen)


def _audit(database: Database, account_id: str, lines: Sequence[LogLine]) -> bool:
    """Whether the account is in order; freezes it if not.

    Under the account's lock no charge is between its log line and its commit.
    """
    with database.transaction() as session:
        account = ledger.lock_account(session, account_id)
        account.frozen_reason = _verdict(session, account, lines)
        return account.frozen_reason is None


def _verdict(session: Session, account: AccountRow, lines: Sequence[LogLine]) -> str | None:
    try:
        verify_account(session, account)
    except LedgerCorrupt as error:
        return error.detail
    known = _known_hashes(session, account)
    for line in lines:
        if line.hash not in known and not _recover(session, account, line):
            return ledger.NO_ROOM
        known.add(line.hash)
    return None


def _recover(session: Session, account: AccountRow, line: LogLine) -> bool:
    """Book a lost charge; False if there is no room for it."""
    job = session.get(JobRow, line.job_id)
    from_reservation = min(line.units, job.reserved_units) if job is not None else 0
    free = account.limit_units - account.reserved_units - account.charged_units
    if line.units - from_reservation > free:
        return False
    account.reserved_units -= from_reservation
    account.charged_units += line.units
    if job is not None:
        job.reserved_units -= from_reservation
        job.charged_units += line.units
        _outdate_leases(job, line.lease_token)
    ledger.append(
        session,
        account,
        EntryKind.RECOVERED,
        dataset_id=line.dataset_id,
        job_id=line.job_id,
        step=line.step,
        label=line.label,
        units=line.units,
        lease_token=line.lease_token,
        recovers=line.hash,
    )
    return True


def _rewrite_lost_lines(database: Database, lines: Sequence[LogLine]) -> None:
    """Make the log whole from the journal, so that the next backup can be checked against it."""
    if database.log is None:
        return
    written = {line.hash for line in lines}
    query = select(LedgerEntryRow).where(LedgerEntryRow.kind.in_(_SPENDS))
    with database.session() as session:
        for row in session.scalars(query.order_by(LedgerEntryRow.account_id, LedgerEntryRow.seq)):
            if not {row.hash, row.recovers} & written:
                database.log.append(LogLine.of(Entry.model_validate(row)))


def _outdate_leases(job: JobRow, lease_token: int) -> None:
    """A worker from after the backup must not pass for the holder of a lease given out anew."""
    if lease_token > job.lease_token:
        job.lease_token = lease_token + 1


def _known_hashes(session: Session, account: AccountRow) -> set[str]:
    query = select(LedgerEntryRow.hash, LedgerEntryRow.recovers).where(
        LedgerEntryRow.account_id == account.id,
        LedgerEntryRow.kind.in_(_SPENDS),
    )
    return {known for row in session.execute(query) for known in row if known is not None}


def _by_account(lines: Sequence[LogLine]) -> defaultdict[str, list[LogLine]]:
    grouped: defaultdict[str, list[LogLine]] = defaultdict(list)
    for line in lines:
        grouped[line.account_id].append(line)
    return grouped


def _check_all_known(lines: Sequence[LogLine], dataset_ids: set[str]) -> None:
    """A forgotten data set means forgotten fingerprints: its records could get a second budget."""
    unknown = {line.dataset_id for line in lines} - dataset_ids
    if unknown:
        raise LedgerCorrupt(
            f"The ledger log has charges of {len(unknown)} data sets that this database does not know, for example "
            f"{min(unknown)}; restore the database that belongs to the log, or a newer backup of it."
        )
