"""The API reference for people: Swagger UI, served by this service alone, under the policy of all other pages."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.pages.views.rendering import PageRoute, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/docs")
def show_reference(request: Request) -> Response:
    """All operations; `/openapi.json` in a form for people. Needs no key."""
    return page(request, "reference")
