"""What an upload whose records were known is told: which account pays for it. For its owner alone.

That two uploads share a record depends on the records, so this stands in answers to the owner and nowhere else.
"""

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.datasets import datasets
from datalens_service.store.ledger.account_summary import summarize_account
from datalens_service.store.tables import LedgerEntryRow


class Joined(BaseModel):
    """The account that an upload joined, as it was then."""

    model_config = ConfigDict(frozen=True)

    known_records: int | None = Field(
        description="Different records of the upload that were known; null for some uploads of earlier versions."
    )
    dataset_ids: tuple[str, ...] = Field(description="Data sets that share the account, the first one first.")
    epsilon: float = Field(description="Lifetime limit of the account.")
    delta: float
    epsilon_spent: float = Field(description="By jobs on all its data sets, rounded up.")
    epsilon_remaining: float = Field(description="Largest ε a new job may name, rounded down.")


def joined(session: Session, dataset_id: str, known_records: int | None) -> Joined | None:
    """The account that a data set joined; None if it opened its own."""
    of_it = (LedgerEntryRow.kind == EntryKind.JOIN, LedgerEntryRow.dataset_id == dataset_id)
    if not session.scalar(select(exists().where(*of_it))):
        return None
    account = summarize_account(session, dataset_id)
    return Joined(
        known_records=known_records,
        dataset_ids=datasets.read_linked(session, dataset_id),
        epsilon=account.epsilon,
        delta=account.delta,
        epsilon_spent=account.epsilon_spent,
        epsilon_remaining=account.epsilon_remaining,
    )
