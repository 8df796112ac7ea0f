"""Signers of what leaves this installation and comes back: cookies, form tokens, download addresses.

Each purpose has a key of its own, derived from the secret of the installation by HMAC-SHA256: what is signed for one
is refused for another. Every API process has the same keys, and a restored database keeps them.
"""

import hashlib
from enum import StrEnum

from itsdangerous import Signer
from sqlalchemy.orm import Session

from datalens_service.store.installation import installation_key


class Purpose(StrEnum):
    """What a signature is for; the salt of its key."""

    BROWSER_SESSION = "datalens browser session"
    FORM = "datalens form"
    DOWNLOAD = "datalens download"
    SIGN_IN_ATTEMPT = "datalens sign-in attempt"


def create_signer(session: Session, purpose: Purpose) -> Signer:
    """A signer whose tokens are VALUE.SIGNATURE, the second in URL-safe base64.

    Signatures carry no time: ends are compared on the server, and clocks of API hosts may differ.
    """
    secret = installation_key(session, lock=False)
    return Signer(secret, salt=purpose, key_derivation="hmac", digest_method=hashlib.sha256)
