"""Is the process alive, can it do its work, and how does the whole service fare?"""

import os
from typing import Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from api.deps import ServicesDep, caller
from api.http import metrics
from api.openapi.document import ok, problems
from datalens_service.errors import StoreUnavailable
from datalens_service.gateways.startup import check_disks
from datalens_service.services.overview import overview

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(Alive):
    """The service can do its work."""

    executor: str


@router.get(
    "/livez",
    operation_id="getLiveness",
    summary="Is the process alive?",
    responses=ok(200, "It answers."),
)
async def livez() -> Alive:
    """Looks at nothing else, not even for a thread: a restart would not help a database that is away."""
    return Alive()


@router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="Can the service do its work?",
    responses={
        **ok(
            200,
            "Database, data folder and, where configured, artifact store and broker are there; no disk is full.",
        ),
        **problems("store-unavailable", "insufficient-storage", "worker-unavailable"),
    },
)
def readyz(services: ServicesDep) -> Ready:
    """Checks the database with its schema and safety settings, the disks, and artifact store and broker.

    A disk with less than 16 MiB free counts as full.
    """
    services.database.check()
    if not os.access(services.settings.data_dir, os.R_OK | os.W_OK | os.X_OK):
        raise StoreUnavailable("The service may not write into its data folder; correct its owner or mode.")
    check_disks(services.settings)
    services.artifacts.check()
    services.dispatcher.check()
    return Ready(executor=services.settings.executor)


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Read the metrics of the whole service",
    dependencies=[Depends(caller)],
    response_class=Response,
    responses={
        200: {"description": "Text format of Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems("unauthorized", "store-unavailable", "internal-error"),
    },
)
def get_metrics(services: ServicesDep) -> Response:
    """Jobs, queues, pace and budgets, from the database; Prometheus sends the key as a bearer token."""
    return Response(metrics.exposition(overview(services.database)), media_type=metrics.MEDIA_TYPE)
