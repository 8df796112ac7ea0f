"""The secret of an installation: the keys of fingerprints, signatures and cookies are derived from it."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.signatures import SigningKey
from datalens_service.store.database import Database
from datalens_service.store.tables import InstallationRow


def installation_key(session: Session, *, lock: bool) -> bytes:
    """The key of this installation; `lock` also makes uploads take turns, so that none overlooks another."""
    query = select(InstallationRow)
    row = session.scalars(query.with_for_update() if lock else query).one()
    return row.fingerprint_key


def signing_key(database: Database) -> SigningKey:
    """The key with which the installation of a database signs: no new state, so a restored database keeps it."""
    with database.session() as session:
        return SigningKey(installation_key(session, lock=False))
