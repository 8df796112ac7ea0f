"""Serves the events of a job: as a list, and as a stream that goes on where a client was cut off."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Final

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from datalens_service.api.deps import LARGEST, Limit, ObjectId, Services, ServicesDep
from datalens_service.api.http.strictness import DIGITS
from datalens_service.api.http.threads import ThreadedRoute
from datalens_service.api.openapi.document import ok
from datalens_service.api.schemas.jobs import EventPage, EventRead
from datalens_service.store.jobs import events, jobs
from datalens_service.store.patience import impatient

MEDIA_TYPE: Final = "text/event-stream"
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
RETRY_MILLISECONDS: Final = 3000
_POLL_SECONDS: Final = 0.5
_KEEP_ALIVE_SECONDS: Final = 15.0
_PAGE_SIZE: Final = 100


async def stream(
    services: Services, is_admitted: Callable[[], bool], job_id: str, delta: float, slack: int, last: int
) -> AsyncIterator[str]:
    """Lines of the stream, from behind event number `last` to the end of the job.

    Args:
        is_admitted: Tells whether the key or the session that asked for the stream may still have it; else it ends.
    """
    yield f"retry: {RETRY_MILLISECONDS}\n\n"
    spoke = time.monotonic()
    while not services.stopping.is_set():
        # It may last for days: it is patient with the database each time anew, as a loop is.
        with impatient():
            admitted = await anyio.to_thread.run_sync(is_admitted)
        if not admitted:
            return
        news = partial(events.list_events, services.database, job_id, after=last, limit=_PAGE_SIZE)
        with impatient():
            found = await anyio.to_thread.run_sync(news)
        for event in found:
            last, spoke = event.seq, time.monotonic()
            data = EventRead.from_event(event, delta, slack).model_dump_json()
            yield f"id: {event.seq}\nevent: {event.type}\ndata: {data}\n\n"
            if event.type.last:
                return
        if time.monotonic() - spoke >= _KEEP_ALIVE_SECONDS:
            spoke = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(_POLL_SECONDS)


router = APIRouter(route_class=ThreadedRoute, prefix="/v1/jobs/{job_id}", tags=["jobs"])
_STREAM: Final = {MEDIA_TYPE: {"schema": {"type": "string"}}}


@router.get("/events", summary="Read the events of a job, or follow them", response_model=EventPage, responses={
        200: {**ok(200, "A page of the events; with `Accept: text/event-stream`, all of them as they happen.")[200],
              "content": _STREAM}
    })  # fmt: skip
def list_job_events(
    job_id: ObjectId,
    request: Request,
    services: ServicesDep,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="Number of the last event that is known."), DIGITS] = 0,
    limit: Limit = 100,
    last_event_id: Annotated[
        int | None,
        Header(ge=0, le=LARGEST, description="Number of the last event that arrived before a stream was cut off."),
        DIGITS,
    ] = None,
) -> Response:
    """States, progress and ε: the numbers of the job and of its account, nothing about records.

    The stream ends with the job, and when the key that asked for it ends or the browser is
    signed out. Each event has its number as `id`;
    `Last-Event-ID` goes on behind it.
    """
    job = jobs.get(services.database, job_id)
    delta, slack = float(job.price["delta"]), int(job.price.get("slack", 0))
    if MEDIA_TYPE in request.headers.get("accept", ""):
        last = after if last_event_id is None else last_event_id
        lines = stream(services, request.state.is_admitted, job_id, delta, slack, last)
        return StreamingResponse(lines, media_type=MEDIA_TYPE, headers=HEADERS)
    listed = events.list_events(services.database, job_id, after=after, limit=limit + 1)
    page = EventPage.cut(listed, limit, lambda event: EventRead.from_event(event, delta, slack))
    return JSONResponse(page.model_dump(mode="json"))
