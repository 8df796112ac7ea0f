"""The API reference for people: pages of this service alone, without a script, under the policy of all other pages."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from api.dashboard import reference
from api.dashboard.rendering import PageRoute, page
from api.deps import Services, ServicesDep
from api.problems.problem_types import PROBLEM_TYPES
from api.security.browser_sessions import resume_session
from datalens_service.errors import NotFound, Unauthorized
from datalens_service.store.access.browser_sessions import BrowserSession

PLACE: Final = "/docs"

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(PLACE)
def show_reference(request: Request, services: ServicesDep) -> Response:
    """All operations in one list, and what holds for all of them. Needs no key."""
    known = [problem for problem in PROBLEM_TYPES.values() if problem.status]
    return page(
        request,
        "reference",
        _session(request, services),
        sections=reference.sections(request.app.openapi()),
        section=None,
        problems=sorted(known, key=lambda problem: (problem.status or 0, problem.slug)),
    )


@router.get(PLACE + "/{name}")
def show_section(name: Annotated[str, Path(max_length=64)], request: Request, services: ServicesDep) -> Response:
    """The operations of one section with parameters, bodies, answers and problems. Needs no key."""
    known = reference.sections(request.app.openapi())
    section = next((one for one in known if one.name == name), None)
    if section is None:
        raise NotFound("The API reference has no section of this name.")
    return page(request, "reference", _session(request, services), sections=known, section=section, problems=())


@router.get("/redoc")
def former_reference() -> Response:
    """Where another reference was."""
    return RedirectResponse(PLACE, 308)


def _session(request: Request, services: Services) -> BrowserSession | None:
    """Of a visitor who has signed in, for the way back to their pages."""
    with suppress(Unauthorized):
        return resume_session(request, services.database)
    return None
