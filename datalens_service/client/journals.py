"""Requests about journals: who did what, and what was spent by whom."""

from collections.abc import Iterator
from datetime import datetime

from datalens_service.client import requests
from datalens_service.client.models import Actor, JournalEntry, LedgerEntry, ResponseModel
from datalens_service.client.transport import Transport


class _Journal(ResponseModel):
    items: tuple[JournalEntry, ...]
    actors: tuple[Actor, ...]
    next_cursor: int | None


class _Spender(ResponseModel):
    job_id: str
    submitted_by: Actor | None


class _Ledger(ResponseModel):
    items: tuple[LedgerEntry, ...]
    spenders: tuple[_Spender, ...]
    next_cursor: int | None


class JournalOperations:
    """Methods of the client about the audit journal, and about the ledgers of datasets."""

    _transport: Transport

    def journal(
        self,
        *,
        actor: str | None = None,
        object_id: str | None = None,
        outcome: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
    ) -> Iterator[JournalEntry]:
        """Yield entries of the audit journal, newest first, fetched page by page.

        Args:
            actor: Id or name of a key or person.
            object_id: Id of the object that was changed or created.
            outcome: HTTP status, or `4xx` for all of a kind.
            since: Time of the earliest entry.
            until: Time before which the latest entry is.
            before: Number of an entry; those before it are yielded.
        """
        times = {name: at and at.isoformat() for name, at in (("since", since), ("until", until))}
        asked = {"actor": actor, "object_id": object_id, "outcome": outcome, **times, "order": "newest"}
        cursor = before
        while True:
            fields = {**asked, "before": cursor, "limit": requests.PAGE_SIZE}
            page = self._transport.send("GET", "/v1/audit", _Journal, {"params": requests.encode_form(fields)})
            names = {one.id: one.name for one in page.actors}
            for entry in page.items:
                yield entry.model_copy(update={"actor_name": names.get(entry.actor)})
            cursor = page.next_cursor
            if cursor is None:
                return

    def ledger(self, dataset_id: str) -> Iterator[LedgerEntry]:
        """Yield entries of the ledger of a dataset's account, oldest first, fetched page by page."""
        cursor: int | None = None
        while True:
            params = requests.encode_form({"after": cursor, "limit": requests.PAGE_SIZE})
            path = f"/v1/datasets/{dataset_id}/privacy/entries"
            page = self._transport.send("GET", path, _Ledger, {"params": params})
            submitters = {one.job_id: one.submitted_by for one in page.spenders}
            for entry in page.items:
                yield entry.model_copy(update={"submitted_by": submitters.get(entry.job_id or "")})
            cursor = page.next_cursor
            if cursor is None:
                return
