"""Two jobs side by side."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from pydantic import StringConstraints

from api.deps import Services, ServicesDep
from api.pages.views.comparison import compare_figures, compare_parameters, side_of
from api.pages.views.rendering import PageRoute
from api.pages.views.visitor import Visitor, VisitorDep
from datalens_service.errors import InvalidInput, NotFound
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.store.access import tenants

_PAIR: Final = 2
_HOW: Final = "Tick exactly two in the list of jobs, then press “Compare two ticked jobs” below it."

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
    _check_chosen(services, visitor, set(job))
    first, second = (side_of(services, visitor, job_id) for job_id in dict.fromkeys(job))
    return visitor.page(
        "comparison",
        sides=(first, second),
        figures=compare_figures(first, second),
        parameters=compare_parameters(first, second),
    )


def _check_chosen(services: Services, visitor: Visitor, chosen: set[str]) -> None:
    if len(chosen) != _PAIR:
        numbers = {0: "No job is", 1: "Only one job is"}
        raise InvalidInput(f"{numbers.get(len(chosen), f'{len(chosen)} jobs are')} chosen. {_HOW}")
    try:
        with services.database.connection() as connection:
            for job_id in chosen:
                tenants.check_owned(connection, visitor.tenant_id, {"job_id": job_id})
    except NotFound:
        raise NotFound(f"At least one of these two jobs is not among yours. {_HOW}") from None
