"""Signing in through an OpenID provider, beside API keys."""

from typing import Annotated

import structlog
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from datalens_service.adapters.openid_provider import CALLBACK, OpenIdProvider, ProviderUnavailableError
from datalens_service.api.deps import Services, ServicesDep
from datalens_service.api.pages.views.rendering import PageRoute, local_path, page
from datalens_service.api.security import browser_sessions as cookies
from datalens_service.api.security import sign_in_attempts as attempts
from datalens_service.base.errors import Forbidden, NotFound, Unauthorized
from datalens_service.services.claims import identify
from datalens_service.store.access import identities
from datalens_service.store.access.browser_sessions import BrowserSession
from datalens_service.store.database_clock import read_clock

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_log = structlog.get_logger("datalens.api")
_Text = Annotated[str, Query(max_length=4096)]
_UNAVAILABLE = "The sign-in service of your organisation does not answer as it should; try again, or use an API key."


@router.get(attempts.PATH)
def leave(request: Request, services: ServicesDep, next: Annotated[str, Query(max_length=500)] = "/") -> Response:
    """Send the browser to the provider."""
    provider = _provider(services)
    attempt = attempts.begin(services.database, local_path(next))
    try:
        answer = RedirectResponse(provider.authorization_url(attempt.secrets), 303, {"Cache-Control": "no-store"})
    except ProviderUnavailableError:
        return _refused(request, _UNAVAILABLE, 503)
    attempts.remember(answer, request, services.database, attempt)
    return answer


@router.get(CALLBACK)
def come_back(
    request: Request, services: ServicesDep, state: _Text = "", code: _Text = "", iss: _Text = ""
) -> Response:
    """Exchange the code for a session; whatever the outcome, the attempt is over."""
    provider = _provider(services)
    try:
        attempt = attempts.resume(request, services.database, state)
        session = _sign_in(services, provider, attempt, code, iss)
    except ProviderUnavailableError:
        answer = _refused(request, _UNAVAILABLE, 503)
    except (Unauthorized, Forbidden) as refusal:
        answer = _refused(request, refusal.detail, 403 if isinstance(refusal, Forbidden) else 401)
    else:
        # A redirect would still count as the provider's: browsers withhold the session from it.
        answer = page(request, "signed_in", next=attempt.next)
        cookies.remember(answer, request, services.database, session)
    attempts.forget(answer, request)
    return answer


def _sign_in(
    services: Services, provider: OpenIdProvider, attempt: attempts.Attempt, code: str, issuer: str
) -> BrowserSession:
    """A session for whoever the provider says it is.

    Raises:
        Unauthorized: The provider does not say so, or another one answered (RFC 9207).
        Forbidden: They have no rights here.
        ProviderUnavailableError: It does not answer.
    """
    if not code or issuer not in ("", services.settings.oidc_issuer):
        raise Unauthorized("The sign-in service did not sign you in; try again.")
    claims = provider.redeem(code, attempt.secrets, read_clock(services.database))
    return identities.sign_in(services.database, identify(services.database, services.settings, claims))


def _provider(services: Services) -> OpenIdProvider:
    if services.openid_provider is None:
        raise NotFound("This service has no single sign-on.")
    return services.openid_provider


def _refused(request: Request, complaint: str, status: int) -> Response:
    # Neither claims nor what the provider wrote: only that it happened.
    _log.warning("single sign-on refused", status=status)
    return page(request, "sign_in", status=status, next="/", complaint=complaint, single_sign_on=True)
