"""Checks that all journals hold together: the audit journal of each tenant, and the ledger of each account."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import exists, select

from datalens_service.base.errors import LedgerCorrupt
from datalens_service.store.access import access_log, tenants
from datalens_service.store.database import Database
from datalens_service.store.ledger.chain_verification import verify_account
from datalens_service.store.schema.service_tables import AuditEntryRow
from datalens_service.store.schema.tables import AccountRow, LedgerEntryRow


@dataclass(frozen=True)
class CheckedJournal:
    """A journal that was read from its first entry to its last, or a guard of them all that is missing.

    Attributes:
        of: Id of the tenant or account, or name of the trigger.
        entries: Number of its entries; None if it does not hold together.
        head_hash: Hash of the last one.
        fault: The first entry that does not fit, and how; None if all do.
    """

    kind: str
    of: str
    entries: int | None = None
    head_hash: str | None = None
    fault: str | None = None


def check_journals(database: Database) -> Iterator[CheckedJournal]:
    """Check every journal of an installation, and what guards them; a service may write to them meanwhile."""
    for trigger in database.find_missing_triggers():
        yield CheckedJournal("guard", trigger, fault="The trigger is missing: entries can be altered and deleted.")
    for tenant in tenants.list_tenants(database):
        yield _check_tenant(database, tenant.id)
    with database.session() as session:
        account_ids = session.scalars(select(AccountRow.id).order_by(AccountRow.created_at, AccountRow.id)).all()
    for account_id in account_ids:
        yield _check_account(database, account_id)


def knows_head(database: Database, head_hash: str) -> bool:
    """Return True if an entry of any journal has this hash, which somebody noted once."""
    with database.session() as session:
        return any(
            session.scalar(select(exists().where(table.hash == head_hash))) for table in (AuditEntryRow, LedgerEntryRow)
        )


def _check_tenant(database: Database, tenant_id: str) -> CheckedJournal:
    try:
        head = access_log.verify(database, tenant_id)
    except LedgerCorrupt as error:
        return CheckedJournal("audit journal", tenant_id, fault=error.text)
    return CheckedJournal("audit journal", tenant_id, head.seq, head.hash)


def _check_account(database: Database, account_id: str) -> CheckedJournal:
    try:
        with database.session() as session:
            balance = verify_account(session, session.get_one(AccountRow, account_id))
    except LedgerCorrupt as error:
        return CheckedJournal("ledger", account_id, fault=error.text)
    return CheckedJournal("ledger", account_id, balance.head_seq, balance.head_hash)
