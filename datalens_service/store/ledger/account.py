"""A job's account at the ledger: what `Mechanism.release` charges, stores and replays through."""

from __future__ import annotations

from sqlalchemy.orm import Session

from datalens_service.errors import InsufficientStorage
from datalens_service.privacy.randomness import Integers
from datalens_service.store.charge_log import LogLine
from datalens_service.store.database import Database
from datalens_service.store.ledger import aggregates, ledger, recovery
from datalens_service.store.tables import AccountRow


class JobAccount:
    """The `Account` of one job under one lease (see `mechanisms.base.Account`).

    Args:
        database: Of the ledger, with its log.
        job_id: The running job.
        lease_token: Of the lease this worker holds; with a later one the worker is refused.
    """

    def __init__(self, database: Database, job_id: str, lease_token: int) -> None:
        self._database = database
        self._job_id = job_id
        self._lease_token = lease_token

    def replay(self, step: int) -> Integers | None:
        """The noisy sum already stored under `step`, or None.

        Raises:
            LedgerCorrupt: The stored bytes were altered.
        """
        with self._database.session() as session:
            return aggregates.replay(session, self._job_id, step)

    def charge(self, step: int, label: str, units: int) -> None:
        """Book `units`: first in the log, then in the database; both are on the disk when this returns.

        Raises:
            BudgetExceeded: The reservation does not cover the charge; nothing was booked.
            StaleLease: Another worker holds the job; nothing was booked.
            LedgerCorrupt: The account is frozen, or was now: the log has charges that it has forgotten.
            StoreUnavailable: Nothing may be drawn; at worst the charge is counted without a draw.
        """
        written: list[tuple[LogLine, int]] = []

        def charge(session: Session) -> None:
            entry = ledger.charge(session, self._job_id, self._lease_token, step, label, units)
            if self._database.log is not None:
                account = session.get_one(AccountRow, entry.account_id)
                line = LogLine.of(entry)
                account.checked_log_bytes = self._database.log.append(line, account.checked_log_bytes)
                written.append((line, account.checked_log_bytes))

        try:
            recovery.in_step_with_log(self._database, charge)
        except InsufficientStorage:
            for line, end in written:
                recovery.withdraw(self._database, line, end)
            raise

    def store(self, step: int, noisy: Integers) -> None:
        """Keep the noisy sum durably under `step`; at most one is ever accepted.

        Raises:
            StaleLease: Another worker holds the job; the sum must not be used.
            StateConflict: The step is stored already or was not charged by this worker.
        """
        with self._database.transaction() as session:
            aggregates.store_aggregate(session, self._job_id, self._lease_token, step, noisy)
