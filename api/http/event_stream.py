"""Events of a job as they happen: Server-Sent Events out of the database, so that any process can serve any client.

A client that was cut off sends `Last-Event-ID` and misses nothing: the database keeps every event.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Final

import anyio.to_thread

from api.schemas.events import EventRead
from datalens_service.store.database import Database
from datalens_service.store.jobs import events
from datalens_service.store.jobs.events import Event

MEDIA_TYPE: Final = "text/event-stream"
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
RETRY_MILLISECONDS: Final = 3000
_POLL_SECONDS: Final = 0.5
_KEEP_ALIVE_SECONDS: Final = 15.0
_PAGE_SIZE: Final = 100


async def stream(
    database: Database, job_id: str, delta: float, slack: int, last: int, stopping: threading.Event
) -> AsyncIterator[str]:
    """Lines of the stream, from behind event number `last` to the end of the job.

    Args:
        delta: δ at which ε is told.
        last: Number of the last event that the client has.
        stopping: Set when the service ends; the client comes back by itself.
    """
    yield f"retry: {RETRY_MILLISECONDS}\n\n"
    spoke = time.monotonic()
    while not stopping.is_set():
        for event in await anyio.to_thread.run_sync(_next, database, job_id, last):
            last, spoke = event.seq, time.monotonic()
            yield _lines(event, delta, slack)
            if event.type.last:
                return
        if time.monotonic() - spoke >= _KEEP_ALIVE_SECONDS:
            spoke = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(_POLL_SECONDS)


def _next(database: Database, job_id: str, last: int) -> tuple[Event, ...]:
    return events.list_events(database, job_id, after=last, limit=_PAGE_SIZE)


def _lines(event: Event, delta: float, slack: int) -> str:
    return f"id: {event.seq}\nevent: {event.type}\ndata: {EventRead.of(event, delta, slack).model_dump_json()}\n\n"
