"""People who sign in through an OpenID provider: a row among the keys that has no key.

The row is what sessions, limits, uploads and the audit journal refer to, under an id that stays the same for a person
within a tenant. Its role and scopes are those of the last sign-in, and it ends with the session: who has left the
organisation is locked out after half a day at the latest, and an owner who revokes the row locks out at once.
"""

import hashlib
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from datalens_service.base.errors import Forbidden
from datalens_service.store.access import browser_sessions, tenants
from datalens_service.store.access.browser_sessions import LIFETIME_SECONDS, BrowserSession
from datalens_service.store.access.keys import SINGLE_SIGN_ON_PREFIX, ApiKey
from datalens_service.store.access.roles import Role, Scope, check_scopes, stored_role, stored_scopes
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.schema.tables import ApiKeyRow

_PREFIX_DIGITS = 12
_ID_DIGITS = 32


@dataclass(frozen=True)
class Identity:
    """A person, as a verified ID token describes them.

    Attributes:
        subject: Stable name at the issuer.
        role: The least one that holds their scopes.
    """

    issuer: str
    subject: str
    name: str
    tenant_id: str
    role: Role
    scopes: frozenset[Scope]

    def digest(self) -> str:
        return hashlib.sha256("\n".join((self.tenant_id, self.issuer, self.subject)).encode()).hexdigest()


def sign_in(database: Database, identity: Identity) -> BrowserSession:
    """A new session of a person.

    Raises:
        Forbidden: An owner has revoked their access.
    """
    with database.transaction() as session:
        key = _remember(session, identity)
    return browser_sessions.open_session(database, key)


def _remember(session: Session, identity: Identity) -> ApiKey:
    # Others who sign in to this tenant now wait for this row.
    tenants.check_open(session, identity.tenant_id)
    digest = identity.digest()
    row = session.get(ApiKeyRow, f"sso_{digest[:_ID_DIGITS]}") or _added(session, identity, digest)
    if row.revoked_at is not None:
        raise Forbidden("Your access was revoked here; ask an owner of the data.")
    check_scopes(identity.role, identity.scopes)
    row.name, row.scopes = identity.name, stored_scopes(identity.role, identity.scopes)
    row.role, row.is_steward = stored_role(identity.role)
    row.expires_at = read_database_clock(session) + timedelta(seconds=LIFETIME_SECONDS)
    session.flush()
    return ApiKey.from_row(row)


def _added(session: Session, identity: Identity, digest: str) -> ApiKeyRow:
    row = ApiKeyRow(
        id=f"sso_{digest[:_ID_DIGITS]}",
        tenant_id=identity.tenant_id,
        name=identity.name,
        prefix=f"{SINGLE_SIGN_ON_PREFIX}{digest[:_PREFIX_DIGITS]}",
        # The hash of no key.
        sha256="",
        role=identity.role,
    )
    session.add(row)
    return row
