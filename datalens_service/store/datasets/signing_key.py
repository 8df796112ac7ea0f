"""The key with which this installation signs: derived from the secret that its database has anyway.

No new state: every process of the API and every worker has the same key, and a migrated or restored database keeps it.
"""

from __future__ import annotations

from datalens_service.signatures import SigningKey
from datalens_service.store.database import Database
from datalens_service.store.installation import installation_key


def signing_key(database: Database) -> SigningKey:
    """The key of the installation that a database belongs to.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    with database.session() as session:
        return SigningKey(installation_key(session, lock=False))
