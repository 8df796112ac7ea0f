"""Recognises callers from a browser: by a cookie that scripts cannot read, and a token that only our pages know."""

import hmac
from typing import Final

from fastapi import Request, Response

from datalens_service.base.errors import Unauthorized
from datalens_service.store.access import browser_sessions
from datalens_service.store.access.browser_sessions import LIFETIME_SECONDS, BrowserSession
from datalens_service.store.database import Database

COOKIE: Final = "datalens-session"
FORM_TOKEN_HEADER: Final = "X-CSRF-Token"  # noqa: S105 (a name)
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def resume_session(request: Request, database: Database) -> BrowserSession:
    """The session of a request.

    A cookie is sent by the browser whoever made it call, so to change something a request also needs the token that
    stands in our pages.

    Raises:
        Unauthorized: No session, an ended one, or a change that does not come from one of our pages.
    """
    token = read_token(request)
    if not token:
        raise Unauthorized("⟦send_key⟧.")
    session = browser_sessions.resume(database, token)
    sent = request.headers.get(FORM_TOKEN_HEADER, "")
    if request.method not in _READING and not hmac.compare_digest(sent.encode(), session.form_token.encode()):
        raise Unauthorized("A signed-in browser may change something from our own pages only: reload and repeat.")
    return session


def is_cross_site(request: Request) -> bool:
    """Return True if the browser says that another site made it send this."""
    return request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none")


def remember(response: Response, request: Request, database: Database, session: BrowserSession) -> None:
    """Hand the session to the browser, for requests from our own pages and no script; one that it had ends."""
    browser_sessions.sign_out(database, read_token(request))
    response.set_cookie(
        _name(request),
        session.token,
        max_age=LIFETIME_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def forget(response: Response, request: Request) -> None:
    """Have the browser drop the session."""
    secure = request.url.scheme == "https"
    response.delete_cookie(_name(request), httponly=True, samesite="strict", secure=secure)


def read_token(request: Request) -> str:
    """Return the token that the browser sent; empty if it has no session."""
    return request.cookies.get(_name(request), "")


def _name(request: Request) -> str:
    """Name the cookie; over TLS with a prefix that binds it to this host, or below a root path to TLS alone."""
    if request.url.scheme != "https":
        return COOKIE
    return f"__Secure-{COOKIE}" if request.scope["root_path"] else f"__Host-{COOKIE}"
