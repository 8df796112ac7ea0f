"""The page of the public key: for whoever was handed a release and has no key to sign in with."""

from __future__ import annotations

from contextlib import suppress

from fastapi import APIRouter, Request, Response

from api.deps import ServicesDep
from api.pages.views.rendering import PageRoute, page
from api.security.browser_sessions import resume_session
from datalens_service.errors import DatalensError

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/signing-key", operation_id="showSigningKey")
def signing_key_page(request: Request, services: ServicesDep) -> Response:
    """The key, and how to check a signature with it."""
    with suppress(DatalensError):
        return page(request, "signing_key", resume_session(request, services.database), key=services.signing_key)
    return page(request, "signing_key", key=services.signing_key)
