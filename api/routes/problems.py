"""What a problem type means: the pages that `type` points to."""

from __future__ import annotations

from html import escape
from typing import Annotated

from fastapi import APIRouter, Header, Path, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel

from api.catalogue import CATALOGUE, ProblemType
from api.openapi import ok, problems
from datalens_service.errors import NotFound

router = APIRouter(prefix="/problems", tags=["problems"])


class ProblemTypeRead(BaseModel):
    """A type of problem."""

    type: str
    title: str
    status: int | None
    meaning: str
    remedy: str

    @classmethod
    def of(cls, problem: ProblemType) -> ProblemTypeRead:
        """What is shown of a type."""
        return cls(
            type=problem.uri,
            title=problem.title,
            status=problem.status,
            meaning=problem.meaning,
            remedy=problem.remedy,
        )


@router.get(
    "/{slug}",
    operation_id="getProblemType",
    summary="Look up what a problem means and what to do",
    response_model=ProblemTypeRead,
    responses={
        **ok(200, "The type, as JSON or as a page."),
        **problems("not-found", "invalid-input"),
    },
)
def get_problem_type(
    slug: Annotated[str, Path(max_length=64)], accept: Annotated[str, Header(include_in_schema=False)] = ""
) -> Response:
    """Needs no key."""
    if slug not in CATALOGUE:
        raise NotFound("There is no problem type of this name.")
    problem = ProblemTypeRead.of(CATALOGUE[slug])
    return HTMLResponse(_page(problem)) if "text/html" in accept else JSONResponse(problem.model_dump())


def _page(problem: ProblemTypeRead) -> str:
    title, meaning, remedy = escape(problem.title), escape(problem.meaning), escape(problem.remedy)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<h1>{title}</h1><p>{meaning}</p><p><strong>What to do:</strong> {remedy}</p></html>"
    )
