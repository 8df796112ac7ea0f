"""Compares an account with its part of the log: books what it has forgotten, or freezes it."""

from collections.abc import Sequence, Set
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.base.errors import BudgetExceeded, LedgerCorrupt
from datalens_service.privacy.accounting import Charge, ledger_units_held_for_slack
from datalens_service.proof.hash_chain import SPENDS, EntryKind
from datalens_service.store.charge_log import LogLine, LogSlice
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.account_summary import summarize_row
from datalens_service.store.ledger.chain_verification import verify_account
from datalens_service.store.schema.tables import LARGEST_UNITS, AccountRow, DatasetRow, JobRow, LedgerEntryRow


def examine(session: Session, account: AccountRow, portion: LogSlice) -> None:
    """Book the charges of `portion` that the account (locked) lacks; freeze it if they do not fit, or it is damaged."""
    account.frozen_reason = _verdict(session, account, portion.lines)
    account.checked_log_bytes = portion.length
    frozen = account.frozen_reason is not None
    account.unbooked_units = _unbooked_units(session, account, portion.lines) if frozen else 0


def _unbooked_units(session: Session, account: AccountRow, lines: Sequence[LogLine]) -> int:
    """Return what the log knows as spent beyond the account's own total, whose journal may be damaged."""
    spent = {line.hash: line for line in lines}
    known = known_hashes(session, account)
    unknown = [line for line_hash, line in spent.items() if line_hash not in known]
    lost = sum(line.ledger_units + _held_alone(account, line.slack) for line in unknown)
    lowered = sum(line.ledger_units for line in spent.values()) - account.charged_units
    return min(max(lost, lowered), LARGEST_UNITS - account.charged_units)


def _held_alone(account: AccountRow, slack: int) -> int:
    """Units that stand for a lost slack while the account is frozen: all of it where δ leaves no room."""
    try:
        return ledger_units_held_for_slack(slack, account.epsilon, account.delta)
    except BudgetExceeded:
        return account.limit_units


def _verdict(session: Session, account: AccountRow, lines: Sequence[LogLine]) -> str | None:
    try:
        check_all_known(session, {line.dataset_id for line in lines})
        verify_account(session, account)
    except LedgerCorrupt as error:
        return error.text
    known = known_hashes(session, account)
    for line in lines:
        if line.hash not in known and not _recover(session, account, line):
            return ledger.NO_ROOM
        known.add(line.hash)
    return None


def _recover(session: Session, account: AccountRow, line: LogLine) -> bool:
    """Book a lost charge; False if there is no room for it."""
    job = session.get(JobRow, line.job_id)
    from_reservation = min(line.ledger_units, job.reserved_units) if job is not None else 0
    slack_from_reservation = min(line.slack, ledger.reserved_slack(session, line.job_id)) if line.slack else 0
    unreserved = Charge(line.ledger_units - from_reservation, line.slack - slack_from_reservation)
    # A frozen account is examined with this open, too.
    if not replace(summarize_row(account), frozen_reason=None).covers(unreserved):
        return False
    account.reserved_slack -= slack_from_reservation
    account.charged_slack += line.slack
    ledger.hold_for_slack(account)
    account.reserved_units -= from_reservation
    account.charged_units += line.ledger_units
    if job is not None:
        job.reservation.reserved_units -= from_reservation
        job.reservation.charged_units += line.ledger_units
        _outdate_leases(job, line.lease_token)
    ledger.append(
        session,
        account,
        EntryKind.RECOVERED,
        dataset_id=line.dataset_id,
        job_id=line.job_id,
        step=line.step,
        label=line.label,
        ledger_units=line.ledger_units,
        slack=line.slack,
        lease_token=line.lease_token,
        recovers=line.hash,
    )
    return True


def _outdate_leases(job: JobRow, lease_token: int) -> None:
    """A worker from after the backup must not pass for the holder of a lease given out anew."""
    if lease_token > job.lease_token:
        job.lease_token = lease_token + 1


def known_hashes(session: Session, account: AccountRow) -> set[str]:
    """Hashes of the charges that its journal has, and of the lost ones that it has booked again."""
    query = select(LedgerEntryRow.hash, LedgerEntryRow.recovers).where(
        LedgerEntryRow.account_id == account.id, LedgerEntryRow.kind.in_(SPENDS)
    )
    return {known for row in session.execute(query) for known in row if known is not None}


def check_all_known(session: Session, named: Set[str]) -> None:
    """A forgotten data set means forgotten fingerprints: its records could get a second budget."""
    unknown = named - set(session.scalars(select(DatasetRow.id))) if named else set()
    if unknown:
        raise LedgerCorrupt(
            f"The ledger log has charges of {len(unknown)} data sets that this database does not know, for example "
            f"{min(unknown)}; restore the database that belongs to the log, or a newer backup of it."
        )
