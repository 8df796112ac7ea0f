"""Does every account add up, and does it know every charge that the log outside the database knows?

Every start asks this of the whole log. Every reservation and charge asks it of what the log has gained since the
account was last checked (`in_step_with_log`), so that a database restored under a running service is noticed before
anything is spent from it.

A restored backup of the database has forgotten what was spent since; the log has not. Each charge that only the
log knows is booked again as `recovered`: out of its job's reservation as far as that goes, the rest out of what
is free. The same happens to a charge whose commit failed after its log line was written; that counts too much,
which is the safe side. An account that does not add up, or has no room for a lost charge, is frozen: nothing is
reserved or charged on it until a later start finds it in order. It states what the log knows as spent
(`AccountRow.unbooked_units`). Lines that the log has lost are written again at the start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.errors import BudgetExceeded, LedgerCorrupt, StoreUnavailable
from datalens_service.privacy.accounting import Charge, units_held_for_slack
from datalens_service.proof.hash_chain import Entry, EntryKind
from datalens_service.store.charge_log import ChargeLog, LogLine, LogMismatch, LogSlice
from datalens_service.store.database import Database
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.account_summary import of_account
from datalens_service.store.ledger.chain_verification import verify_account
from datalens_service.store.tables import (
    LARGEST_UNITS,
    AccountRow,
    DatasetRow,
    InstallationRow,
    JobRow,
    LedgerEntryRow,
)

T = TypeVar("T")

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
    log = database.log.read_after(0) if database.log is not None else LogSlice([], 0)
    with database.transaction() as session:
        account_ids = session.scalars(select(AccountRow.id).order_by(AccountRow.id)).all()
        _check_all_known(session, log.lines)
        session.get_one(InstallationRow, 1).checked_log_bytes = log.length
    grouped = _by_account(log.lines)
    frozen = [
        account_id
        for account_id in account_ids
        if not _audit(database, account_id, LogSlice(grouped[account_id], log.length))
    ]
    _rewrite_lost_lines(database, log.lines)
    return tuple(frozen)


def in_step_with_log(database: Database, action: Callable[[Session], T]) -> T:
    """Run `action` in a transaction; if the log is not as the account left it, book what it knows and repeat.

    Args:
        database: Where.
        action: Reserves or charges, after `ChargeLog.check` or by `ChargeLog.append`.

    Raises:
        LedgerCorrupt: The account had to be frozen.
    """
    while True:
        try:
            with database.transaction() as session:
                return action(session)
        except LogMismatch as mismatch:
            _catch_up(database, mismatch.account_id)


def check_log(log: ChargeLog | None, account: AccountRow) -> None:
    """Refuse to go on with an account (locked) that may have forgotten charges; to be called `in_step_with_log`.

    Raises:
        LogMismatch: The log is not as the account left it.
    """
    if log is not None and account.frozen_reason is None:
        account.checked_log_bytes = log.check(account.id, account.checked_log_bytes)


def check_log_before_upload(session: Session, log: ChargeLog | None) -> int:
    """Refuse to register records while the log has charges of data sets that this database has forgotten.

    Args:
        session: Of an open transaction that holds the lock of the installation.
        log: Of the database.

    Returns:
        Length of the log.

    Raises:
        LedgerCorrupt: It has: their records would pass for new ones and get a second budget.
    """
    if log is None:
        return 0
    installation = session.get_one(InstallationRow, 1)
    portion = log.read_after(installation.checked_log_bytes)
    _check_all_known(session, portion.lines)
    installation.checked_log_bytes = portion.length
    return portion.length


def withdraw(database: Database, line: LogLine, end: int) -> None:
    """Withdraw the line of a charge from the log unless its journal has the charge.

    For a disk that was full at the commit: nothing was drawn, and each repetition would leave another line. Where
    that is not possible the line stays, and counts.

    Args:
        database: Where.
        line: As it was appended.
        end: What `ChargeLog.append` returned.
    """
    if database.log is None:
        return
    with suppress(StoreUnavailable), database.transaction() as session:
        account = ledger.lock_account(session, line.account_id)
        if line.hash not in _known_hashes(session, account):
            database.log.withdraw(line, end)


def _catch_up(database: Database, account_id: str) -> None:
    """Book what the log has gained, or freeze the account."""
    with database.transaction() as session:
        account = ledger.lock_account(session, account_id)
        if database.log is None or account.frozen_reason is not None:
            return
        try:
            portion = database.log.read_after(account.checked_log_bytes)
        except LedgerCorrupt as error:
            account.frozen_reason = error.detail
            return
        lines = [line for line in portion.lines if line.account_id == account_id]
        _examine(session, account, LogSlice(lines, portion.length))


def _audit(database: Database, account_id: str, portion: LogSlice) -> bool:
    """Whether the account is in order; freezes it if not.

    Under the account's lock no charge is between its log line and its commit.
    """
    with database.transaction() as session:
        account = ledger.lock_account(session, account_id)
        _examine(session, account, portion)
        return account.frozen_reason is None


def _examine(session: Session, account: AccountRow, portion: LogSlice) -> None:
    """Book the charges of `portion` that the account (locked) lacks; freeze it if they do not fit, or it is damaged."""
    account.frozen_reason = _verdict(session, account, portion.lines)
    account.checked_log_bytes = portion.length
    frozen = account.frozen_reason is not None
    account.unbooked_units = _unbooked_units(session, account, portion.lines) if frozen else 0


def _unbooked_units(session: Session, account: AccountRow, lines: Sequence[LogLine]) -> int:
    """What the log knows as spent beyond the account's own total, whose journal may be damaged."""
    spent = {line.hash: line for line in lines}
    known = _known_hashes(session, account)
    unknown = [line for line_hash, line in spent.items() if line_hash not in known]
    lost = sum(line.units + _held_alone(account, line.slack) for line in unknown)
    lowered = sum(line.units for line in spent.values()) - account.charged_units
    return min(max(lost, lowered), LARGEST_UNITS - account.charged_units)


def _held_alone(account: AccountRow, slack: int) -> int:
    """Units that stand for a lost slack while the account is frozen: all of it where δ leaves no room."""
    try:
        return units_held_for_slack(slack, account.epsilon, account.delta)
    except BudgetExceeded:
        return account.limit_units


def _verdict(session: Session, account: AccountRow, lines: Sequence[LogLine]) -> str | None:
    try:
        _check_all_known(session, lines)
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
    slack_from_reservation = min(line.slack, ledger.reserved_slack(session, line.job_id)) if line.slack else 0
    unreserved = Charge(line.units - from_reservation, line.slack - slack_from_reservation)
    # A frozen account is examined with this open, too.
    if not replace(of_account(account), frozen_reason=None).covers(unreserved):
        return False
    account.reserved_slack -= slack_from_reservation
    account.charged_slack += line.slack
    ledger.hold_for_slack(account)
    account.reserved_units -= from_reservation
    account.charged_units += line.units
    if job is not None:
        job.reservation.reserved_units -= from_reservation
        job.reservation.charged_units += line.units
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
        slack=line.slack,
        lease_token=line.lease_token,
        recovers=line.hash,
    )
    return True


def _rewrite_lost_lines(database: Database, lines: Sequence[LogLine]) -> None:
    """Make the log whole from the journal, so that the next backup can be checked against it."""
    if database.log is None:
        return
    written = {line.hash for line in lines}
    columns = (LedgerEntryRow.account_id, LedgerEntryRow.seq, LedgerEntryRow.hash, LedgerEntryRow.recovers)
    query = select(*columns).where(LedgerEntryRow.kind.in_(_SPENDS))
    with database.session() as session:
        for row in session.execute(query.order_by(LedgerEntryRow.account_id, LedgerEntryRow.seq)):
            if not {row.hash, row.recovers} & written:
                lost = session.get_one(LedgerEntryRow, (row.account_id, row.seq))
                database.log.add(LogLine.of(Entry.model_validate(lost)))


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


def _check_all_known(session: Session, lines: Sequence[LogLine]) -> None:
    """A forgotten data set means forgotten fingerprints: its records could get a second budget."""
    named = {line.dataset_id for line in lines}
    unknown = named - set(session.scalars(select(DatasetRow.id))) if named else set()
    if unknown:
        raise LedgerCorrupt(
            f"The ledger log has charges of {len(unknown)} data sets that this database does not know, for example "
            f"{min(unknown)}; restore the database that belongs to the log, or a newer backup of it."
        )
