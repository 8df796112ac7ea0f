"""Group commit of the audit journal: calls that end while a transaction is written share the next one.

    call ──▶ waits ─┐
    call ──▶ waits ─┼─▶ one transaction per tenant ──▶ durable ──▶ all answers leave
    call ──▶ waits ─┘   (the next calls gather meanwhile)

A call that comes alone waits for nobody.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import anyio.to_thread

from datalens_service.store.access import access_log
from datalens_service.store.access.access_log import Note
from datalens_service.store.database import Database


@dataclass(frozen=True, eq=False)
class _Waiting:
    tenant_id: str
    note: Note
    written: asyncio.Future[None]

    def succeed(self) -> None:
        # Whoever hung up waits no more; the note stays.
        if not self.written.done():
            self.written.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.written.done():
            self.written.set_exception(error)


class NoteWriter:
    """Writes notes to journals; belongs to one event loop.

    Args:
        database: With the journals.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, tenant_id: str, note: Note) -> None:
        """Note a call; durable when it returns.

        Raises:
            StoreUnavailable: It was not noted.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(tenant_id, note, loop.create_future())
        self._waiting.append(waiting)
        if self._task is None:
            self._task = loop.create_task(self._write_all())
        await waiting.written

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                for tenant_id in dict.fromkeys(each.tenant_id for each in batch):
                    await self._write_tenant(tenant_id, [each for each in batch if each.tenant_id == tenant_id])
        finally:
            self._task = None

    async def _write_tenant(self, tenant_id: str, batch: list[_Waiting]) -> None:
        """In a transaction of its own: what is wrong with one journal holds up no other."""
        notes = [each.note for each in batch]
        try:
            await anyio.to_thread.run_sync(access_log.note_all, self._database, tenant_id, notes)
        except asyncio.CancelledError:
            for each in batch:
                each.written.cancel()
            raise
        except Exception as error:  # noqa: BLE001 (each of those who wait raises it)
            for each in batch:
                each.fail(error)
        else:
            for each in batch:
                each.succeed()
