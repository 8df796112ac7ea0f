"""The account of a data set: reserve at submit, charge before each draw, settle at the end, refund never.

Every function takes the session of an open `Database.transaction()` (or `session()` for the reading ones) and
locks what it decides on: first the account's row, then the job's. Together with the journal entry they write,
the totals on the account's and the job's row change in the same transaction.

    limit ≥ reserved + charged + held  for every account, at every commit (also a CHECK of the table)
    limit never falls                  and rises by an entry of its own only (also a trigger)
    charged never falls                (also a trigger)
    a draw happens only after its charge has committed (mechanisms/base.py)

Units are integers, 1e-15 of μ²; no float takes part in a decision. `held` are units by which the slack of sampled
batches lowers the limit (docs/mechanisms/poisson_sampling.md); charging them is `account.py`.
"""

from operator import index
from typing import cast
from uuid import uuid4

from sqlalchemy import Table, insert, select
from sqlalchemy.orm import Session

from datalens_service.base.clock import to_minute
from datalens_service.base.errors import (
    BudgetExceeded,
    InvalidInput,
    InvalidSpec,
    LedgerCorrupt,
    NotFound,
    StaleLease,
    StateConflict,
)
from datalens_service.base.parsing import decimal_text
from datalens_service.privacy import accounting
from datalens_service.privacy.accounting import Charge
from datalens_service.privacy.guarantee import advise_on_budget
from datalens_service.proof.hash_chain import GENESIS, SPENDS, Entry, EntryKind, budget_label
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.ledger.account_summary import AccountSummary, summarize_row
from datalens_service.store.schema.tables import (
    LARGEST_UNITS,
    AccountRow,
    AggregateRow,
    JobRow,
    LedgerEntryRow,
    ReleasedStateRow,
    ReservationRow,
)

_ADD_ENTRY = insert(cast(Table, LedgerEntryRow.__table__))
NO_ROOM = (
    "its ledger log knows charges that its budget has no room for; cancel queued jobs or raise the budget, "
    "then restart."
)
"""The reason why an account is frozen although its journal adds up."""


def open_account(
    session: Session, dataset_id: str, epsilon: float, delta: float, checked_log_bytes: int = 0
) -> AccountRow:
    """Open the account of records that no account knows yet.

    Args:
        delta: Fixed for the lifetime of the account.
        checked_log_bytes: Length of the ledger log, which has no charge of this account.

    Raises:
        InvalidSpec: ε holds less than one unit or more than a BIGINT.
    """
    ledger_units = accounting.limit_units(epsilon, delta)
    if not 0 < ledger_units <= LARGEST_UNITS:
        raise InvalidSpec("ε is outside what the ledger can count; choose a value between 0.0001 and 1000.")
    account = AccountRow(
        id=f"acc_{uuid4().hex}",
        epsilon=epsilon,
        delta=delta,
        limit_units=ledger_units,
        reserved_units=0,
        charged_units=0,
        reserved_slack=0,
        charged_slack=0,
        held_for_slack=0,
        head_seq=0,
        head_hash=GENESIS,
        checked_log_bytes=checked_log_bytes,
        unbooked_units=0,
    )
    session.add(account)
    append(
        session,
        account,
        EntryKind.OPEN,
        dataset_id=dataset_id,
        ledger_units=ledger_units,
        label=budget_label(epsilon, delta),
    )
    return account


def raise_limit(session: Session, account: AccountRow, dataset_id: str, epsilon: float) -> None:
    """Let `account` (locked) hold more; δ, and all that was spent, stay as they are.

    Raises:
        StateConflict: Not more than the account holds.
        InvalidSpec: More than a BIGINT.
        LedgerCorrupt: The account is frozen, and not for lack of room.
    """
    # A raise is the remedy where charges have no room; any other fault has to be cleared up first.
    if account.frozen_reason != NO_ROOM:
        _check_not_frozen(account)
    ledger_units = accounting.limit_units(epsilon, account.delta)
    if ledger_units > LARGEST_UNITS:
        raise InvalidSpec("ε is outside what the ledger can count; choose a smaller value.")
    added = ledger_units - account.limit_units
    if epsilon <= account.epsilon or added < 1:
        now = decimal_text(account.epsilon)
        raise StateConflict(f"The lifetime budget is ε = {now} already; it can only be raised.")
    account.epsilon, account.limit_units = epsilon, ledger_units
    hold_for_slack(account)
    label = budget_label(epsilon, account.delta)
    append(session, account, EntryKind.RAISE, dataset_id=dataset_id, ledger_units=added, label=label)


def join(session: Session, account: AccountRow, dataset_id: str) -> None:
    """Note that `account` (locked) pays for another data set from now on."""
    append(session, account, EntryKind.JOIN, dataset_id=dataset_id)


def reserve(session: Session, account: AccountRow, job: JobRow, ledger_units: int, slack: int = 0) -> None:
    """Set `ledger_units` aside for a new job; the caller inserts the job in the same transaction.

    Args:
        ledger_units: At least 1.
        slack: Beside them, in 1e-18 of δ.

    Raises:
        BudgetExceeded: Less remains; the members say how much, as ε. Or slack would take more than half of δ.
        LedgerCorrupt: The account is frozen.
    """
    ledger_units = _positive(ledger_units)
    _check_not_frozen(account)
    statement = summarize_row(account)
    # Checked under the lock of the account, so that two jobs cannot both take the last of it.
    if not statement.covers(Charge(ledger_units, slack)):
        raise _exceeded(statement, ledger_units, slack)
    account.reserved_units += ledger_units
    account.reserved_slack += index(slack)
    hold_for_slack(account)
    job.reservation.reserved_units = ledger_units
    append(
        session,
        account,
        EntryKind.RESERVE,
        dataset_id=job.dataset_id,
        job_id=job.id,
        ledger_units=ledger_units,
        slack=slack,
    )


def new_reservation(job_id: str, account_id: str, owner_kind: str) -> ReservationRow:
    """An empty reservation for a new row of `jobs`; `reserve` fills it.

    Args:
        owner_kind: "job" or "measurement".
    """
    return ReservationRow(
        id=job_id,
        account_id=account_id,
        owner_kind=owner_kind,
        owner_id=job_id,
        reserved_units=0,
        charged_units=0,
        settled=False,
    )


def charge(
    session: Session, job_id: str, lease_token: int, step: int, label: str, ledger_units: int, slack: int = 0
) -> Entry:
    """Spend `ledger_units` and `slack` of the job's reservation on `step`, before anything is drawn for it.

    A step that was charged and not stored is charged again: whether its noise was drawn is not known. Its slack is
    not: that is set aside for the whole job.

    Raises:
        StaleLease: `lease_token` is not the current one, or the job does not run.
        BudgetExceeded: The reservation does not cover it; nothing was booked.
        StateConflict: The step has a stored aggregate: replay it.
        LedgerCorrupt: The account is frozen.
    """
    ledger_units = _positive(ledger_units)
    account, job = lock_for_charge(session, job_id, lease_token, step)
    # A step that is charged again pays its units twice, since it may have been drawn, but its slack once.
    slack = 0 if slack and _has_charged_slack(session, job_id, step) else slack
    if ledger_units > job.reserved_units or (slack and slack > reserved_slack(session, job_id)):
        raise BudgetExceeded(f"The job's reservation does not cover step {step}; it has to end before this step.")
    return spend(session, account, job, step, label, Charge(ledger_units, slack))


def spend(session: Session, account: AccountRow, job: JobRow, step: int, label: str, price: Charge) -> Entry:
    """Turn what is set aside for a step into what is spent; both rows locked. What is held for slack stays as it is."""
    ledger_units, slack = price
    job.reservation.reserved_units -= ledger_units
    job.reservation.charged_units += ledger_units
    account.reserved_units -= ledger_units
    account.charged_units += ledger_units
    account.reserved_slack -= slack
    account.charged_slack += slack
    return append(
        session,
        account,
        EntryKind.CHARGE,
        dataset_id=job.dataset_id,
        job_id=job.id,
        step=step,
        label=label,
        ledger_units=ledger_units,
        slack=slack,
        lease_token=job.lease_token,
    )


def _has_charged_slack(session: Session, job_id: str, step: int) -> bool:
    query = select(LedgerEntryRow.seq).where(
        LedgerEntryRow.job_id == job_id,
        LedgerEntryRow.step == step,
        LedgerEntryRow.slack > 0,
        LedgerEntryRow.kind.in_(SPENDS),
    )
    return session.scalars(query.limit(1)).first() is not None


def lock_for_charge(session: Session, job_id: str, lease_token: int, step: int) -> tuple[AccountRow, JobRow]:
    """The account's and the job's row, locked, if `step` may be charged.

    Raises:
        StaleLease: `lease_token` is not the current one, or the job does not run.
        StateConflict: The step has a stored aggregate, or a state that stands for it.
        LedgerCorrupt: The account is frozen.
    """
    account, job = lock(session, job_id)
    _check_not_frozen(account)
    check_lease(job, lease_token)
    if index(step) < 0:
        raise InvalidInput("step must be a whole number of at least 0.")
    state = session.get(ReleasedStateRow, job_id, populate_existing=True)
    if session.get(AggregateRow, (job_id, step)) is not None or (state is not None and step < state.step):
        raise StateConflict(f"Step {step} is stored already; replay it instead of drawing it again.")
    return account, job


def settle(session: Session, job_id: str) -> int:
    """Return what the job reserved and did not spend, in units; its charges stay. A second call changes nothing."""
    account, job = lock(session, job_id)
    reservation = job.reservation
    # Both the worker and whoever finds it dead may settle a job: the second does nothing.
    if reservation.settled:
        return 0
    remainder, slack = reservation.reserved_units, reserved_slack(session, job_id)
    account.reserved_units -= remainder
    account.reserved_slack -= slack
    hold_for_slack(account)
    reservation.reserved_units = 0
    reservation.settled = True
    append(
        session,
        account,
        EntryKind.SETTLE,
        dataset_id=job.dataset_id,
        job_id=job_id,
        ledger_units=remainder,
        slack=slack,
    )
    return remainder


def reserved_slack(session: Session, job_id: str) -> int:
    """Slack that is set aside for a job and neither spent nor returned, as the journal has it."""
    query = select(LedgerEntryRow.kind, LedgerEntryRow.slack).where(
        LedgerEntryRow.job_id == job_id, LedgerEntryRow.slack > 0
    )
    reserved = 0
    for kind, slack in session.execute(query.order_by(LedgerEntryRow.seq)):
        # A recovered charge may spend more slack than was set aside; what is left is never below 0.
        reserved += slack if kind == EntryKind.RESERVE else -min(slack, reserved)
    return reserved


def hold_for_slack(account: AccountRow) -> None:
    """Hold as many units as the slack of the account (locked) takes from what its limit holds.

    Raises:
        BudgetExceeded: It is more than half of δ.
    """
    slack = account.reserved_slack + account.charged_slack
    account.held_for_slack = accounting.ledger_units_held_for_slack(slack, account.epsilon, account.delta)


def note_deletion(session: Session, account: AccountRow, dataset_id: str) -> None:
    """Note that the records of a data set are gone; nothing else changes on the `account` (locked)."""
    append(session, account, EntryKind.DELETE, dataset_id=dataset_id)


def lock_account(session: Session, account_id: str) -> AccountRow:
    """The account's row, locked until the transaction ends.

    Raises:
        NotFound: No such account.
    """
    query = select(AccountRow).where(AccountRow.id == account_id)
    account = session.scalars(query.with_for_update().execution_options(populate_existing=True)).one_or_none()
    if account is None:
        raise NotFound("There is no such account.")
    return account


def lock(session: Session, job_id: str) -> tuple[AccountRow, JobRow]:
    """The account's and the job's row, locked in this order, always.

    Raises:
        NotFound: No such job.
    """
    # Read without a lock: the account of a job never changes, and it has to be locked before the job.
    account_id = session.scalar(select(JobRow.account_id).where(JobRow.id == job_id))
    if account_id is None:
        raise NotFound("There is no such job.")
    account = lock_account(session, account_id)
    query = select(JobRow).where(JobRow.id == job_id)
    return account, session.scalars(query.with_for_update().execution_options(populate_existing=True)).one()


def job_row(session: Session, job_id: str, *, lock: bool = False) -> JobRow:
    """The job's row, locked or not; never lock the account after it.

    Raises:
        NotFound: No such job.
    """
    query = select(JobRow).where(JobRow.id == job_id)
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFound("There is no such job.")
    return row


def check_lease(job: JobRow, lease_token: int) -> None:
    """Fencing: only the holder of the current token may go on.

    Raises:
        StaleLease: The job was given to another worker, or has ended.
    """
    if job.state != "running" or job.lease_token != lease_token:
        raise StaleLease("The job is no longer held under this lease; stop without releasing anything.")


def append(
    session: Session,
    account: AccountRow,
    kind: EntryKind,
    *,
    dataset_id: str,
    job_id: str | None = None,
    step: int | None = None,
    label: str = "",
    ledger_units: int = 0,
    slack: int = 0,
    lease_token: int | None = None,
    recovers: str | None = None,
) -> Entry:
    """Seal one entry onto the chain of `account` (locked) and flush, so that every constraint has been checked."""
    entry = Entry.sealed(
        account_id=account.id,
        seq=account.head_seq + 1,
        kind=kind.value,
        dataset_id=dataset_id,
        job_id=job_id,
        step=step,
        label=label,
        ledger_units=ledger_units,
        slack=slack,
        lease_token=lease_token,
        at=to_minute(read_database_clock(session)),
        recovers=recovers,
        previous_hash=account.head_hash,
    )
    # The row goes first: if the numbers of the account break a constraint, no entry is written.
    account.head_seq, account.head_hash = entry.seq, entry.hash
    session.flush()
    # Not as an object of the session, which would watch it for changes: an entry never changes.
    session.connection().execute(_ADD_ENTRY, dict(entry))
    return entry


def _positive(ledger_units: int) -> int:
    # A negative charge would be a refund; index() refuses floats.
    if index(ledger_units) < 1:
        raise InvalidInput("A charge must be a whole number of at least 1.")
    return index(ledger_units)


def _check_not_frozen(account: AccountRow) -> None:
    if account.frozen_reason is not None:
        raise LedgerCorrupt(f"The account {account.id} is frozen: {account.frozen_reason}")


def _exceeded(statement: AccountSummary, ledger_units: int, slack: int) -> BudgetExceeded:
    figures, requested = statement.figures(), statement.convert_to_epsilon(ledger_units, slack)
    beside = f", {statement.epsilon_remaining_beside(slack)} for a job with sampled gradients" if slack else ""
    return BudgetExceeded(
        f"The request needs ε = {requested} and {figures.epsilon_remaining} of {figures.epsilon_limit} "
        f"remains{beside}; {advise_on_budget(figures.epsilon_remaining, figures.epsilon_reserved)}.",
        extra={**figures.model_dump(), "epsilon_requested": requested},
    )
