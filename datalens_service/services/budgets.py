"""Raising a lifetime budget: an act of the owner with a reason, on the account's journal and on the audit journal."""

from sqlalchemy.orm import Session

from datalens_service.base.parsing import decimal_text
from datalens_service.store.access import access_log
from datalens_service.store.database import Database
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.account_summary import AccountSummary, read_account, summarize_row
from datalens_service.store.ledger.recovery import check_log, in_step_with_log
from datalens_service.store.schema.tables import DatasetRow


def raise_budget(database: Database, dataset_id: str, epsilon: float, *, reason: str, actor: str) -> AccountSummary:
    """Let the account of a data set hold more from now on; both journals tell of it, or nothing happened.

    The reason stays on the audit journal: that of the account is public.

    Raises:
        StateConflict: The account holds as much already.
        InvalidSpec: More than the ledger can count.
    """

    def raise_limit(session: Session) -> AccountSummary:
        account = ledger.lock_account(session, read_account(session, dataset_id).id)
        check_log(database, account)
        tenant_id = session.get_one(DatasetRow, dataset_id).tenant_id
        before = decimal_text(account.epsilon)
        ledger.raise_limit(session, account, dataset_id, epsilon)
        access_log.append(
            session,
            tenant_id,
            actor=actor,
            action="raiseDatasetPrivacy",
            object_id=dataset_id,
            detail=f"epsilon {before} to {decimal_text(epsilon)} at delta {decimal_text(account.delta)}: {reason}",
        )
        return summarize_row(account)

    return in_step_with_log(database, raise_limit)
