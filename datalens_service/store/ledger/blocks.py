"""Draws of a job in batches: all that they cost is charged before the first, and nothing of it returns.

A block is one entry of the journal with its units and its slack, and an entry of 0 units for every further draw. The
number of draws is counted there, also of those that a crash lost, and no more are made than were paid for.
"""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import BudgetExceeded
from datalens_service.privacy.accounting import Charge
from datalens_service.privacy.partitioned_passes import Block
from datalens_service.proof.hash_chain import SPENDS, Entry
from datalens_service.store.ledger import ledger
from datalens_service.store.schema.tables import LedgerEntryRow


def charge_draw(session: Session, job_id: str, lease_token: int, step: int, label: str, block: Block) -> Entry:
    """Book a draw before its batch is known: the whole block with the first, 0 units with the others.

    A step that was charged and not stored is drawn again as one more draw: whether its noise was drawn is not known.

    Raises:
        BudgetExceeded: The reservation does not cover the block, or all draws are made; nothing was booked.
        StateConflict: The step is stored already.
    """
    account, job = ledger.lock_for_charge(session, job_id, lease_token, step)
    # Counted in the journal, which also has the draws that a crash lost.
    drawn = count_draws(session, job_id, label)
    if drawn >= block.draws:
        raise BudgetExceeded(f"All {block.draws:,} draws of the job are made; it has to end before this step.")
    # The first draw pays for all of them: sampled batches have no price of their own.
    price = Charge(0) if drawn else block.charge()
    if price.ledger_units > job.reserved_units or price.slack > ledger.reserved_slack(session, job_id):
        raise BudgetExceeded("The job's reservation does not cover its draws.")
    return ledger.spend(session, account, job, step, label, price)


def count_draws(session: Session, job_id: str, label: str) -> int:
    """Count the draws of a job so far, those that a crash lost included."""
    query = select(func.count()).where(
        LedgerEntryRow.job_id == job_id, LedgerEntryRow.label == label, LedgerEntryRow.kind.in_(SPENDS)
    )
    return session.scalars(query).one()
