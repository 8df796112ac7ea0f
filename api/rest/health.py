"""Health of the service: whether the process is alive, whether it can do its work, and figures of the whole."""

import os
from typing import Literal

from anyio import to_thread
from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from datalens_service.api.deps import Services, ServicesDep, caller
from datalens_service.api.http import metrics
from datalens_service.api.http.threads import ThreadedRoute
from datalens_service.api.openapi.document import ok, problems
from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.wording import speak
from datalens_service.services.overview import overview

router = APIRouter(route_class=ThreadedRoute, tags=["health"])


class Alive(BaseModel):
    """The process answers requests."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """The service answers requests."""

    status: Literal["ok", "degraded"]
    executor: str
    degraded: dict[str, str] = Field(
        description="Faults of the service by part, while it still answers: `disk`, `database` (its certificate), "
        "`artifact_store`, `record_store`, `broker`, `workers`, `clock`; looked at every ten seconds."
    )


@router.get("/livez", summary="Is the process alive?", responses=ok(200, "It answers."))
async def get_liveness() -> Alive:
    """Looks at nothing else, not even for a thread: a restart would not help a database that is away."""
    return Alive()


@router.get(
    "/readyz",
    summary="Can the service answer?",
    responses=ok(200, "Database and data folder are available; the body lists other faults.", "store-unavailable"),
)
async def get_readiness(services: ServicesDep) -> Ready:
    """Checks the database with its schema and safety settings, and the data folder.

    Without a broker, an artifact store, a worker or room on a disk it still answers, but is degraded. A disk with
    less than 16 MiB free counts as full.
    """
    # Requests that wait for a lock may have all connections and all threads; it has some of its own.
    await to_thread.run_sync(_check, services, limiter=services.readiness_threads)
    degraded = {part: speak(text) for part, text in services.surroundings.faults.items()}
    return Ready(status="degraded" if degraded else "ok", executor=services.settings.executor, degraded=degraded)


def _check(services: Services) -> None:
    services.readiness.check()
    if not os.access(services.settings.data_dir, os.R_OK | os.W_OK | os.X_OK):
        raise StoreUnavailable("The service may not write into its data folder; correct its owner or mode.")


@router.get(
    "/metrics",
    summary="Read the metrics of the whole service",
    dependencies=[Depends(caller)],
    response_class=Response,
    responses={
        200: {"description": "Text format of Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems("unauthorized", "store-unavailable", "internal-error"),
    },
)
def get_metrics(services: ServicesDep) -> Response:
    """Jobs, queues, pace and budgets, from the database, and its surroundings; Prometheus sends the key as a bearer."""
    text = metrics.exposition(overview(services.database), services.surroundings, services.refusals)
    return Response(text, media_type=metrics.MEDIA_TYPE)
