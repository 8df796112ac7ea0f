"""The secret of an installation: the keys of fingerprints, signatures, cookies and signed addresses derive from it.

Each purpose of a signer has a key of its own, by HMAC-SHA256: what is signed for one is refused for another. Every API
process has the same keys, and a restored database keeps them.
"""

import hashlib
from enum import StrEnum

from itsdangerous import Signer
from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.base.signatures import SigningKey
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import InstallationRow


def installation_key(session: Session, *, lock: bool) -> bytes:
    """The key of this installation; `lock` also makes uploads take turns, so that none overlooks another."""
    query = select(InstallationRow)
    row = session.scalars(query.with_for_update() if lock else query).one()
    return row.fingerprint_key


def signing_key(database: Database) -> SigningKey:
    """The key with which the installation of a database signs: no new state, so a restored database keeps it."""
    with database.session() as session:
        return SigningKey(installation_key(session, lock=False))


class Purpose(StrEnum):
    """The purpose of a signature; the salt of its key."""

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
