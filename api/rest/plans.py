"""Plans: what a training request would cost, before anything runs."""

from typing import Annotated

from fastapi import APIRouter, Body

from datalens_service.api.deps import Caller, ServicesDep
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import ok
from datalens_service.api.schemas.common import PlanRead, PlanRequest
from datalens_service.services import encoders, pricing

router = APIRouter(prefix="/v1/plans", route_class=StrictRoute, tags=["plans"])


@router.post(
    "",
    summary="Price a training request without reserving anything",
    responses=ok(
        200,
        "The cost.",
        "invalid-input",
        "invalid-spec",
        "invalid-delta",
        "epsilon-infeasible",
        "accuracy-unreachable",
        "not-found",
        "state-conflict",
    ),
)
def create_plan(
    request: Annotated[PlanRequest, Body(openapi_examples=examples.REQUESTS)], services: ServicesDep, key: Caller
) -> PlanRead:
    """Every release of the run with its noise, and what all of it costs the account of the dataset."""
    priced = pricing.price_request(services.database, key.tenant_id, request.dataset_id, request.spec, services.prices)
    encoders.find(services.artifacts, priced.spec.method)
    return PlanRead.from_priced(priced, services.prices, request.accuracy)
