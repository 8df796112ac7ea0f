"""Secrets that are shown once and kept as SHA-256: 36 characters of base62 (214 bits).

The first eight characters find the row; the remaining 166 bits are the secret.
"""

import hashlib
import hmac
import secrets
import string
from typing import Final

LENGTH: Final = 36
PREFIX_LENGTH: Final = 8
PATTERN: Final = rf"[0-9A-Za-z]{{{LENGTH}}}"

_ALPHABET: Final = string.digits + string.ascii_letters


def draw_secret() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(LENGTH))


def digest(plain: str) -> str:
    """Hash a secret, as it is kept."""
    return hashlib.sha256(plain.encode()).hexdigest()


def matches(stored: str | None, plain: str) -> bool:
    """Compare a secret with what is kept of one, in a time that tells a known prefix from an unknown one to nobody.

    Args:
        stored: None where no row has the prefix.
    """
    return hmac.compare_digest(stored or "", digest(plain))
