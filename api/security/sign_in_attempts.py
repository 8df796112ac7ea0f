"""The state of a sign-in between leaving for the OpenID provider and coming back: a signed cookie of ten minutes.

The cookie is sent when another site leads here (`SameSite=lax`), which the session's is not. It is for one path, is
removed by the first answer of the provider, and is worth nothing without the code that answers it.
"""

import base64
import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from typing import Final

from fastapi import Request, Response
from itsdangerous import BadSignature

from datalens_service.adapters.openid_provider import Secrets
from datalens_service.base.errors import Unauthorized
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_clock, read_database_clock
from datalens_service.store.installation import Purpose, create_signer

COOKIE: Final = "datalens-sign-in"
PATH: Final = "/sign-in/oidc"
LIFETIME_SECONDS: Final = 600

_RANDOM_BYTES: Final = 32
_LOST: Final = "This sign-in was not begun in this browser, or too long ago: begin again."


@dataclass(frozen=True)
class Attempt:
    """A sign-in that was begun.

    Attributes:
        next: Page to show afterwards; a path of this service.
        expires_at: Seconds since 1970.
    """

    secrets: Secrets
    next: str
    expires_at: int


def begin(database: Database, next: str) -> Attempt:
    """Start a new attempt with fresh random values."""
    state, nonce, verifier = (secrets.token_urlsafe(_RANDOM_BYTES) for _ in range(3))
    return Attempt(Secrets(state, nonce, verifier), next, int(read_clock(database).timestamp()) + LIFETIME_SECONDS)


def remember(response: Response, request: Request, database: Database, attempt: Attempt) -> None:
    """Hand the attempt to the browser."""
    payload = base64.urlsafe_b64encode(json.dumps(asdict(attempt)).encode())
    with database.session() as session:
        value = create_signer(session, Purpose.SIGN_IN_ATTEMPT).sign(payload).decode()
    response.set_cookie(
        _name(request),
        value,
        max_age=LIFETIME_SECONDS,
        path=PATH,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def resume(request: Request, database: Database, state: str) -> Attempt:
    """The attempt that an answer with this state belongs to.

    Raises:
        Unauthorized: There is none in this browser, or it is too old.
    """
    try:
        with database.session() as session:
            now, signer = read_database_clock(session), create_signer(session, Purpose.SIGN_IN_ATTEMPT)
            fields = json.loads(base64.urlsafe_b64decode(signer.unsign(request.cookies.get(_name(request), ""))))
    except BadSignature:
        raise Unauthorized(_LOST) from None
    attempt = Attempt(Secrets(**fields["secrets"]), fields["next"], fields["expires_at"])
    same = hmac.compare_digest(attempt.secrets.state.encode(), state.encode())
    if not same or now.timestamp() >= attempt.expires_at:
        raise Unauthorized(_LOST)
    return attempt


def forget(response: Response, request: Request) -> None:
    """Have the browser drop the attempt."""
    secure = request.url.scheme == "https"
    response.delete_cookie(_name(request), path=PATH, httponly=True, samesite="lax", secure=secure)


def _name(request: Request) -> str:
    return f"__Secure-{COOKIE}" if request.url.scheme == "https" else COOKIE
