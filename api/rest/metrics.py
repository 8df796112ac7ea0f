"""For Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from api.deps import ServicesDep, caller
from api.http import metrics
from api.openapi.document import problems
from datalens_service.services.overview import overview

router = APIRouter(tags=["health"], dependencies=[Depends(caller)], default_response_class=Response)


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Read the metrics of the whole service",
    responses={
        200: {"description": "Text format of Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems("unauthorized", "store-unavailable", "internal-error"),
    },
)
def get_metrics(services: ServicesDep) -> Response:
    """Jobs, queues, pace and budgets, from the database; Prometheus sends the key as a bearer token."""
    return Response(metrics.exposition(overview(services.database)), media_type=metrics.MEDIA_TYPE)
