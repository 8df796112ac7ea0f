"""Is the process alive, and can it do its work?"""

from __future__ import annotations

import os
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from api.deps import ServicesDep
from api.openapi.document import ok, problems
from datalens_service.errors import StoreUnavailable
from datalens_service.gateways.startup import check_disks

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
def livez() -> Alive:
    """Looks at nothing else: a restart would not help a database that is away."""
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
