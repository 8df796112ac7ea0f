"""Checks that an account adds up: chain, totals, jobs and stored aggregates against each other."""

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import LedgerCorrupt
from datalens_service.proof.hash_chain import Balance, EntryKind, broken, budget_label, follow
from datalens_service.store.ledger.account_summary import journal, read_account
from datalens_service.store.schema.tables import AccountRow, AggregateRow, JobRow, LedgerEntryRow, ReservationRow


def verify_chain(session: Session, dataset_id: str) -> Balance:
    """Check the journal of a data set's account, and that all totals are what it adds up to.

    Raises:
        LedgerCorrupt: Names the first entry, total, job or step that does not fit.
    """
    return verify_account(session, read_account(session, dataset_id))


def verify_account(session: Session, account: AccountRow) -> Balance:
    """The same for the account itself.

    Raises:
        LedgerCorrupt: Names the first entry, total, job or step that does not fit.
    """
    balance = follow(journal(session, account.id))
    _check_head(account, balance)
    _check_totals(account, balance)
    _check_reservations(session, account, balance)
    _check_aggregates(session, account)
    return balance


def _check_head(account: AccountRow, balance: Balance) -> None:
    if balance.head_seq < account.head_seq:
        raise broken(account.id, balance.head_seq + 1, "is missing")
    if (account.head_seq, account.head_hash) != (balance.head_seq, balance.head_hash):
        raise broken(account.id, balance.head_seq, "is not the one the account ends with")
    if balance.budget != budget_label(account.epsilon, account.delta):
        raise broken(account.id, 1, "names another ε and δ than the account")


def _check_totals(account: AccountRow, balance: Balance) -> None:
    pairs = {
        "limit": (account.limit_units, balance.limit),
        "reserved": (account.reserved_units, balance.total_reserved),
        "charged": (account.charged_units, balance.total_charged),
        "reserved slack": (account.reserved_slack, sum(balance.reserved_slack.values())),
        "charged slack": (account.charged_slack, sum(balance.charged_slack.values())),
        "held for slack": (account.held_for_slack, balance.held_for_slack),
    }
    for name, (actual, expected) in pairs.items():
        if actual != expected:
            raise LedgerCorrupt(
                f"Account {account.id} says {actual} units are its {name}, its journal adds up to {expected}.",
                extra={"account_id": account.id, "total": name},
            )


def _check_reservations(session: Session, account: AccountRow, balance: Balance) -> None:
    query = select(ReservationRow).where(ReservationRow.account_id == account.id)
    for reservation in session.scalars(query.order_by(ReservationRow.id)):
        totals = (reservation.reserved_units, reservation.charged_units)
        if totals != (balance.reserved[reservation.id], balance.charged[reservation.id]):
            raise LedgerCorrupt(
                f"Job {reservation.id} says other reserved and charged units than the journal of account {account.id}.",
                extra={"account_id": account.id, "job_id": reservation.id},
            )


def _check_aggregates(session: Session, account: AccountRow) -> None:
    """Every stored draw was charged under the lease that drew it."""
    paid = exists().where(
        LedgerEntryRow.kind == EntryKind.CHARGE,
        LedgerEntryRow.job_id == AggregateRow.job_id,
        LedgerEntryRow.step == AggregateRow.step,
        LedgerEntryRow.lease_token == AggregateRow.lease_token,
    )
    query = select(AggregateRow.job_id, AggregateRow.step).join(JobRow)
    unpaid = session.execute(query.where(JobRow.account_id == account.id, ~paid)).first()
    if unpaid is not None:
        raise LedgerCorrupt(
            f"Step {unpaid.step} of job {unpaid.job_id} was drawn without a charge.",
            extra={"account_id": account.id, "job_id": unpaid.job_id, "step": unpaid.step},
        )
