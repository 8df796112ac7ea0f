"""Serves the pages that `type` of a problem points to."""

from typing import Annotated, Self

from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from datalens_service.api.addresses import Link
from datalens_service.api.http.threads import ThreadedRoute
from datalens_service.api.openapi.document import ok
from datalens_service.api.pages.views.rendering import page
from datalens_service.api.problems.problem_types import PROBLEM_TYPES, ProblemType
from datalens_service.base.errors import NotFound
from datalens_service.base.fields import copied

router = APIRouter(route_class=ThreadedRoute, prefix="/problems", tags=["problems"])


class ProblemTypeRead(BaseModel):
    """A type of problem."""

    type: Link
    title: str
    status: int | None
    meaning: str
    remedy: str

    @classmethod
    def from_type(cls, problem: ProblemType) -> Self:
        return copied(cls, problem, type=problem.uri)


@router.get(
    "/{slug}",
    summary="Read what a problem means and what to do",
    response_model=ProblemTypeRead,
    responses=ok(200, "The type, as JSON or as a page."),
)
def get_problem_type(
    slug: Annotated[str, Path(max_length=64)],
    request: Request,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """This operation needs no key."""
    if slug not in PROBLEM_TYPES:
        raise NotFound("There is no problem type of this name.")
    if "text/html" in accept:
        return page(request, "problem", problem=PROBLEM_TYPES[slug])
    return JSONResponse(ProblemTypeRead.from_type(PROBLEM_TYPES[slug]).model_dump())
