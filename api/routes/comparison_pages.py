"""Two jobs side by side."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from pydantic import StringConstraints

from api.dashboard.comparison import compare_figures, compare_parameters, side_of
from api.dashboard.rendering import PageRoute
from api.dashboard.visitor import VisitorDep
from api.deps import ServicesDep
from datalens_service.errors import InvalidInput
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.store.access import tenants

_PAIR: Final = 2

router = APIRouter(route_class=PageRoute, include_in_schema=False)

JobId = Annotated[str, StringConstraints(max_length=64, pattern=IDENTIFIER)]
Chosen = Annotated[list[JobId], Query(max_length=100, default_factory=list)]


@router.get("/jobs/compare", operation_id="showJobComparison")
def comparison_page(visitor: VisitorDep, services: ServicesDep, job: Chosen) -> Response:
    """Samples, figures and parameters of two jobs.

    Raises:
        InvalidInput: Not exactly two jobs are named.
        NotFound: One of them does not exist, or belongs to another tenant.
    """
    if len(set(job)) != _PAIR:
        raise InvalidInput("Choose exactly two jobs of the list, then compare them.")
    with services.database.connection() as connection:
        for job_id in job:
            tenants.check_owned(connection, visitor.tenant_id, {"job_id": job_id})
    first, second = (side_of(services, visitor, job_id) for job_id in dict.fromkeys(job))
    return visitor.page(
        "comparison",
        sides=(first, second),
        figures=compare_figures(first, second),
        parameters=compare_parameters(first, second),
    )
