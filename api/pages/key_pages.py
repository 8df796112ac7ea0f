"""The page of API keys."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.pages.views.rendering import PageRoute
from api.pages.views.visitor import VisitorDep

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/keys", operation_id="showApiKeys")
def keys_page(visitor: VisitorDep) -> Response:
    """Keys; the page fetches them itself, as it also makes and revokes them."""
    return visitor.page("keys")
