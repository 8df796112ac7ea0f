"""Pages that need no key: signing in and out, signing key, glossary, and API reference (Swagger UI, served by us)."""

from contextlib import suppress
from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from datalens_service.api.deps import ServicesDep
from datalens_service.api.pages.views.rendering import SIGN_IN, PageRoute, local_path, open_page, page
from datalens_service.api.security import browser_sessions as cookies
from datalens_service.api.security.browser_sessions import resume_session
from datalens_service.base.errors import Unauthorized
from datalens_service.store.access import browser_sessions

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(SIGN_IN)
def sign_in_page(request: Request, next: Annotated[str, Query(max_length=500)] = "/") -> Response:
    return _form(request, next)


@router.post(SIGN_IN)
def sign_in(
    request: Request,
    services: ServicesDep,
    key: Annotated[str, Form(max_length=200)] = "",
    next: Annotated[str, Form(max_length=500)] = "/",
) -> Response:
    """Exchange a key for a session; the key is not kept."""
    if cookies.is_cross_site(request):
        return _form(request, next, "Another site sent this form. Type the key here.", 403)
    try:
        with services.limits.count_wrong_keys(request):
            session = browser_sessions.sign_in(services.database, key.strip())
    except Unauthorized as error:
        return _form(request, next, error.detail, 401)
    answer = RedirectResponse(local_path(next), 303)
    cookies.remember(answer, request, services.database, session)
    return answer


@router.post("/sign-out")
def sign_out(
    request: Request, services: ServicesDep, everywhere: Annotated[Literal["", "true"], Form()] = ""
) -> Response:
    """End the session, or all of its key. Nothing else changes, so it needs no token; only other sites may not send it.

    A cookie that stands for no session is dropped like any other.
    """
    if cookies.is_cross_site(request):
        return RedirectResponse("/", 303)
    token = cookies.read_token(request)
    with suppress(Unauthorized):
        if everywhere:
            browser_sessions.sign_out_everywhere(
                services.database, browser_sessions.resume(services.database, token).key.id
            )
    browser_sessions.sign_out(services.database, token)
    answer = RedirectResponse(SIGN_IN, 303)
    cookies.forget(answer, request)
    return answer


def _form(request: Request, next: str, complaint: str | None = None, status: int = 200) -> Response:
    offered = bool(request.app.state.settings.oidc_issuer)
    return page(request, "sign_in", status=status, next=local_path(next), complaint=complaint, single_sign_on=offered)


@router.get("/signing-key")
def show_signing_key(request: Request, services: ServicesDep) -> Response:
    return open_page(request, "signing_key", key=services.signing_key)


@router.get("/glossary")
def show_glossary(request: Request) -> Response:
    """Show the words that each “?” leads to, and other words of the documentation."""
    return open_page(request, "glossary")


@router.get("/datasets")
def go_to_datasets() -> Response:
    return RedirectResponse("/", 307)


@router.get("/favicon.ico")
def go_to_icon() -> Response:
    """Lead browsers that read no page to the icon."""
    return RedirectResponse("/static/mark.svg", 307)


@router.get("/account")
def account_page(request: Request, services: ServicesDep) -> Response:
    return page(request, "account", resume_session(request, services.database))


@router.get("/docs")
def show_reference(request: Request) -> Response:
    """Show all operations of `/openapi.json` in a form for people. This page needs no key."""
    return page(request, "reference")
