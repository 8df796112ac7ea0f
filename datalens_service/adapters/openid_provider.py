"""Asks an OpenID provider who somebody is: authorization code flow with PKCE, state and nonce (OpenID Connect Core).

Metadata is fetched when first needed and again after an hour; keys are fetched at each sign-in, so that a provider that
has changed them is believed at once. Only asymmetric signatures are accepted: an ID token without one, or one made
with the client secret, is refused. Authlib is loaded on the first sign-in: most services do without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import httpx2

from datalens_service.base.errors import Unauthorized
from datalens_service.base.settings import Settings

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

SIGNATURES: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
CALLBACK: Final = "/sign-in/oidc/callback"

_TIMEOUT_SECONDS: Final = 10.0
_METADATA_SECONDS: Final = 3600.0
_LEEWAY_SECONDS: Final = 60
_METHODS: Final = ("client_secret_basic", "client_secret_post")


class ProviderUnavailableError(Exception):
    """The provider does not answer, or not as the standard says."""


@dataclass(frozen=True)
class Secrets:
    """Random values that tie an answer of the provider to one browser and one attempt; all three are for one use.

    Attributes:
        state: Comes back beside the code: the answer is to this browser's request.
        nonce: Comes back within the ID token: the token is for this request.
        verifier: Sent with the code: who stole the code lacks it (PKCE).
    """

    state: str
    nonce: str
    verifier: str


class OpenIdProvider:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._metadata: tuple[float, Mapping[str, Any]] | None = None

    @property
    def redirect_uri(self) -> str:
        """Return where the provider sends the browser; has to be registered there."""
        return f"{self._settings.public_address}{CALLBACK}"

    def authorization_url(self, attempt: Secrets) -> str:
        """Return where the browser goes to sign in.

        Raises:
            ProviderUnavailableError: The metadata cannot be read.
        """
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        return str(
            prepare_grant_uri(
                self._discover()["authorization_endpoint"],
                client_id=self._settings.oidc_client_id,
                response_type="code",
                redirect_uri=self.redirect_uri,
                scope=self._settings.oidc_requested_scopes,
                state=attempt.state,
                nonce=attempt.nonce,
                code_challenge=create_s256_code_challenge(attempt.verifier),
                code_challenge_method="S256",
            )
        )

    def redeem(self, code: str, attempt: Secrets, now: datetime) -> Mapping[str, Any]:
        """The claims of whoever signed in.

        Args:
            now: By the clock of the database, not of this machine.

        Raises:
            Unauthorized: The provider refuses the code, or the ID token does not stand every check.
            ProviderUnavailableError: It does not answer.
        """
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        metadata = self._discover()
        tokens = self._exchange(metadata, code, attempt.verifier)
        try:
            keys = KeySet.import_key_set(_fetch(metadata["jwks_uri"]))
        except (JoseError, ValueError, KeyError, TypeError):
            raise ProviderUnavailableError from None
        settings = self._settings
        return check_id_token(tokens, keys, settings.oidc_issuer, settings.oidc_client_id, attempt.nonce, now)

    def _discover(self) -> Mapping[str, Any]:
        with self._lock:
            if self._metadata is None or time.monotonic() - self._metadata[0] > _METADATA_SECONDS:
                self._metadata = time.monotonic(), _read_metadata(self._settings.oidc_issuer)
            return self._metadata[1]

    def _exchange(self, metadata: Mapping[str, Any], code: str, verifier: str) -> Mapping[str, Any]:
        from authlib.oauth2.auth import ClientAuth
        from authlib.oauth2.rfc6749.parameters import prepare_token_request

        secret = self._settings.oidc_client_secret.get_secret_value()
        offered = metadata.get("token_endpoint_auth_methods_supported") or _METHODS
        method = next((name for name in _METHODS if name in offered), _METHODS[0]) if secret else "none"
        body = prepare_token_request(
            "authorization_code", code=code, redirect_uri=self.redirect_uri, code_verifier=verifier
        )
        authentication = ClientAuth(self._settings.oidc_client_id, secret, method)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        uri, headers, body = authentication.prepare("POST", metadata["token_endpoint"], headers, body)
        return _post(uri, headers, body)


def check_id_token(
    tokens: Mapping[str, Any], keys: KeySet, issuer: str, client_id: str, nonce: str, now: datetime
) -> Mapping[str, Any]:
    """The claims of an ID token, if it is signed by the issuer, for this client, for this request, and not too old.

    Raises:
        Unauthorized: It is not; the sentence does not say which.
    """
    from authlib.oidc.core import CodeIDToken
    from joserfc import jwt
    from joserfc.errors import JoseError

    expected = {
        "iss": {"essential": True, "value": issuer},
        "aud": {"essential": True, "value": client_id},
        "sub": {"essential": True},
    }
    parameters = {"client_id": client_id, "nonce": nonce, "access_token": tokens.get("access_token")}
    try:
        token = jwt.decode(tokens["id_token"], keys, algorithms=list(SIGNATURES))
        claims = CodeIDToken(token.claims, token.header, expected, parameters)
        claims.validate(now=int(now.timestamp()), leeway=_LEEWAY_SECONDS)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError):
        raise Unauthorized("The answer of the sign-in service did not pass its check; try again.") from None
    if not isinstance(claims["sub"], str):
        raise Unauthorized("The answer of the sign-in service names nobody.")
    return dict(claims)


def _read_metadata(issuer: str) -> Mapping[str, Any]:
    """Metadata of the provider.

    Raises:
        ProviderUnavailableError: Not there, or of another issuer, or an endpoint is missing or not encrypted.
    """
    from authlib.oidc.discovery import OpenIDProviderMetadata, get_well_known_url

    metadata: Mapping[str, Any] = OpenIDProviderMetadata(_fetch(get_well_known_url(issuer, external=True)))
    if metadata.get("issuer") != issuer:
        raise ProviderUnavailableError
    schemes = ("https://",) if issuer.startswith("https://") else ("https://", "http://")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        if not str(metadata.get(name, "")).startswith(schemes):
            raise ProviderUnavailableError
    return metadata


def _fetch(url: str) -> Any:
    """An object of JSON."""
    try:
        document = httpx2.get(url, timeout=_TIMEOUT_SECONDS).raise_for_status().json()
    except (httpx2.HTTPError, ValueError):
        raise ProviderUnavailableError from None
    if not isinstance(document, dict):
        raise ProviderUnavailableError
    return document


def _post(url: str, headers: Mapping[str, str], body: str) -> Mapping[str, Any]:
    try:
        answer = httpx2.post(url, content=body, headers=dict(headers), timeout=_TIMEOUT_SECONDS)
        tokens = answer.json()
    except (httpx2.HTTPError, ValueError):
        raise ProviderUnavailableError from None
    if answer.status_code in (400, 401, 403):
        raise Unauthorized("The sign-in service refused the code; try again.")
    if answer.status_code != 200 or not isinstance(tokens, dict):
        raise ProviderUnavailableError
    return tokens
