"""Plans: what a training request would cost, before anything runs."""

from __future__ import annotations

import functools
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Response

from api.deps import Caller, ServicesDep, caller
from api.http.few_threads import PLANS
from api.http.strictness import StrictRoute
from api.openapi import examples
from api.openapi.document import ok, problems
from api.schemas.common import PlanRead, TrainingRequest
from datalens_service.services import pricing
from datalens_service.services.pricing import Quote

router = APIRouter(
    prefix="/v1/plans",
    route_class=StrictRoute,
    tags=["plans"],
    dependencies=[Depends(caller)],
    responses=problems("unauthorized", "store-unavailable", "internal-error"),
)


@router.post(
    "",
    operation_id="createPlan",
    summary="Price a training request without reserving anything",
    response_model=PlanRead,
    responses={
        **ok(200, "The cost."),
        **problems(
            "invalid-input", "invalid-spec", "invalid-delta", "epsilon-infeasible", "not-found", "state-conflict"
        ),
    },
)
@PLANS.handler
def create_plan(
    request: Annotated[TrainingRequest, Body(openapi_examples=examples.REQUESTS)], services: ServicesDep, key: Caller
) -> Response:
    """Every release of the run with its noise, and what all of it costs the account of the dataset."""
    quote = pricing.quote(services.database, key.tenant_id, request.dataset_id, request.spec)
    return Response(_encode(quote), media_type="application/json")


@functools.lru_cache(maxsize=256)
def _encode(quote: Quote) -> bytes:
    """The same until the account changes."""
    return PlanRead.from_quote(quote).model_dump_json(by_alias=True).encode()
