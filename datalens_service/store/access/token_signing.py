"""Signed tokens of this installation: one key for each purpose, derived from the installation key.

Signing is itsdangerous's: HMAC-SHA256 over base64url JSON. A token that was signed for one purpose is invalid for every
other. Tokens carry no time of signing: when one ends is stored beside it (sessions) or is part of it (addresses), so a
machine whose clock is a second behind does not refuse a token that another has just signed.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

from itsdangerous import Signer, URLSafeSerializer
from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.store.tables import InstallationRow


class Purpose(StrEnum):
    """What a token is for; the value is the salt of its key, so changing one ends all tokens of that purpose."""

    BROWSER_SESSION = "datalens browser session"
    FORM_TOKEN = "datalens form token"  # noqa: S105 (a salt)
    DOWNLOAD_ADDRESS = "datalens download address"


def token_serializer(session: Session, purpose: Purpose) -> URLSafeSerializer:
    """Signs and reads tokens of one purpose: `payload.signature`.

    Args:
        session: For the installation key.
        purpose: Of the tokens.
    """
    options = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeSerializer(_installation_key(session), salt=purpose, signer_kwargs=options)


def token_signature(session: Session, purpose: Purpose, value: str) -> str:
    """The signature of a value alone, base64url."""
    signer = Signer(_installation_key(session), salt=purpose, key_derivation="hmac", digest_method=hashlib.sha256)
    return signer.get_signature(value).decode()


def _installation_key(session: Session) -> bytes:
    return session.scalars(select(InstallationRow)).one().fingerprint_key
