"""Checks that every account adds up, and knows every charge that the log outside the database knows.

Every start checks the whole log, and each account before it is used. Every reservation and charge checks what the log
has gained since the account was last checked (`in_step_with_log`), so that a database restored under a running service
is noticed before anything is spent from it.

A restored backup of the database has forgotten what was spent since; the log has not. Each charge that only the
log knows is booked again as "recovered": out of its job's reservation as far as that goes, the rest out of what
is free. The same happens to a charge whose commit failed after its log line was written; that counts too much,
which is the safe side. An account that does not add up, or has no room for a lost charge, is frozen: nothing is
reserved or charged on it until a later start finds it in order. It states what the log knows as spent
(`AccountRow.unbooked_units`). Lines that the log has lost are written again at the start.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.base.errors import LedgerCorrupt, StoreUnavailable
from datalens_service.proof.hash_chain import SPENDS, Entry
from datalens_service.store.charge_log import ChargeLog, LogIndex, LogLine, LogMismatch, LogSlice
from datalens_service.store.database import Database
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.examination import check_all_known, examine, known_hashes
from datalens_service.store.schema.tables import AccountRow, InstallationRow, LedgerEntryRow

T = TypeVar("T")


def check_against_log(database: Database) -> tuple[str, ...]:
    """Ids of the accounts that a check of all of them freezes; run at the start of processes that give out jobs.

    Raises:
        LedgerCorrupt: The journal or the log contradicts itself.
    """
    return finish_check(database, begin_check(database))


def begin_check(database: Database) -> LogIndex:
    """The index of the log, which belongs to this database; no account counts as checked from here on.

    From then on this process reserves nothing on an account and raises no limit before the account has been checked:
    `in_step_with_log` does it at the first use, `finish_check` for all others.

    Raises:
        LedgerCorrupt: The log cannot be read, or names data sets this database does not have: it is not the
            database of this log, or a backup that has forgotten whose records they were. Nothing may start on it.
    """
    # The log first: a data set in it was committed before, so it is among those read next.
    log = database.log.index() if database.log is not None else LogIndex({}, set(), 0)
    with database.transaction() as session:
        account_ids = session.scalars(select(AccountRow.id).order_by(AccountRow.id)).all()
        check_all_known(session, log.dataset_ids)
        session.get_one(InstallationRow, 1).checked_log_bytes = log.length
    database.unchecked.update(dict.fromkeys(account_ids, log))
    return log


def finish_check(database: Database, log: LogIndex, stopping: Callable[[], bool] = lambda: False) -> tuple[str, ...]:
    """Check accounts that no use has checked since `begin_check`, and restore the log; ids of those it has frozen.

    Raises:
        StoreUnavailable: Disk or database do not answer; to be repeated.
    """
    frozen: list[str] = []
    for account_id in tuple(database.unchecked):
        if stopping():
            return tuple(frozen)
        if not _check(database, account_id):
            frozen.append(account_id)
    _rewrite_lost_lines(database, log)
    return tuple(frozen)


def in_step_with_log(database: Database, action: Callable[[Session], T]) -> T:
    """Run `action` in a transaction; if the log is not as the account left it, book what it knows and repeat.

    Args:
        action: Reserves, charges or raises a limit, after `check_log` or by `ChargeLog.append`.

    Raises:
        LedgerCorrupt: The account had to be frozen.
    """
    while True:
        try:
            with database.transaction() as session:
                return action(session)
        except LogMismatch as mismatch:
            _catch_up(database, mismatch.account_id)


def check_log(database: Database, account: AccountRow) -> None:
    """Refuse to go on with an account (locked) that may have forgotten charges; to be called `in_step_with_log`.

    Raises:
        LogMismatch: The log is not as the account left it, or the account has not been checked since the start.
    """
    if account.id in database.unchecked:
        raise LogMismatch(account.id)
    if database.log is not None and account.frozen_reason is None:
        account.checked_log_bytes = database.log.check(account.id, account.checked_log_bytes)


def check_log_before_upload(session: Session, log: ChargeLog | None) -> int:
    """Length of the log, unless it has charges of data sets that this database has forgotten: then nothing is added.

    Raises:
        LedgerCorrupt: It has: their records would pass for new ones and get a second budget.
    """
    if log is None:
        return 0
    installation = session.get_one(InstallationRow, 1)
    gained = log.index(installation.checked_log_bytes)
    check_all_known(session, gained.dataset_ids)
    installation.checked_log_bytes = gained.length
    return gained.length


def withdraw(database: Database, line: LogLine, end: int) -> None:
    """Withdraw the line of a charge from the log unless its journal has the charge.

    For a disk that was full at the commit: nothing was drawn, and each repetition would leave another line. Where
    that is not possible the line stays, and counts.
    """
    if database.log is None:
        return
    with suppress(StoreUnavailable), database.transaction() as session:
        account = ledger.lock_account(session, line.account_id)
        if line.hash not in known_hashes(session, account):
            database.log.withdraw(line, end)


def _catch_up(database: Database, account_id: str) -> None:
    """Book what the log has gained, or freeze the account; check it if that was not done since the start."""
    if account_id in database.unchecked:
        _check(database, account_id)
        return
    with database.transaction() as session:
        account = ledger.lock_account(session, account_id)
        if (log := database.log) is not None and account.frozen_reason is None:
            _examine(session, account, lambda: log.read_after(account.checked_log_bytes, account_id))


def _check(database: Database, account_id: str) -> bool:
    """Return True if an account of `Database.unchecked` is in order; freeze it if not.

    Under the account's lock no charge is between its log line and its commit.
    """
    with database.transaction() as session:
        account = ledger.lock_account(session, account_id)
        index = database.unchecked.get(account_id)
        # None: somebody else was faster.
        if index is not None:
            _examine(session, account, lambda: _read_indexed(database, index, account_id))
        intact = account.frozen_reason is None
    database.unchecked.pop(account_id, None)
    return intact


def _examine(session: Session, account: AccountRow, read: Callable[[], LogSlice]) -> None:
    """Examine an account (locked) against what the log has of it, or freeze it if that cannot be read."""
    try:
        portion = read()
    except LedgerCorrupt as error:
        account.frozen_reason = error.text
    else:
        examine(session, account, portion)


def _read_indexed(database: Database, index: LogIndex, account_id: str) -> LogSlice:
    return LogSlice([], 0) if database.log is None else database.log.read_indexed(index, account_id)


def _rewrite_lost_lines(database: Database, index: LogIndex) -> None:
    """Make the log whole from the journal, so that the next backup can be checked against it."""
    if (log := database.log) is None:
        return
    columns = (LedgerEntryRow.account_id, LedgerEntryRow.seq, LedgerEntryRow.hash, LedgerEntryRow.recovers)
    query = select(*columns).where(LedgerEntryRow.kind.in_(SPENDS))
    lost = list[LogLine]()
    with database.session() as session:
        ordered = query.order_by(LedgerEntryRow.account_id, LedgerEntryRow.seq)
        charges = session.execute(ordered.execution_options(yield_per=1000))
        # After the journal: a charge in this snapshot was in the log before it was committed.
        gained = log.read_after(index.length)
        for account_id, rows in groupby(charges, key=lambda row: row.account_id):
            written = {line.hash for line in (*log.read_indexed(index, account_id).lines, *gained.lines)}
            lost += [
                LogLine.from_entry(Entry.model_validate(session.get_one(LedgerEntryRow, (row.account_id, row.seq))))
                for row in rows
                if not {row.hash, row.recovers} & written
            ]
    if lost:
        log.restore(lost, gained.length)
