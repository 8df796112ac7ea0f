"""Addresses that fetch one releasable file without a key, until they expire.

    /v1/downloads/{what is granted}?signature={its signature}

Both parts are one token of `token_signing`. What is granted names tenant, job, file, digest, audience, the key that
asked for it, and the end. Whoever changes one of them has no signature for it; a key that was revoked takes its
addresses with it. The signature is in the query, which no log has.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

from itsdangerous import BadData
from pydantic import BaseModel, ConfigDict, ValidationError

from datalens_service.clock import utc_now
from datalens_service.errors import Forbidden
from datalens_service.store.access import keys
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.access.token_signing import Purpose, token_serializer
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import Artifact, ArtifactStore

GRANTED: Final = r"^\.?[A-Za-z0-9_-]+$"
"""What a path of an address may look like; the point says that the rest is compressed."""


class Grant(BaseModel):
    """What an address allows: one GET of one file as it is now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant_id: str
    key_id: str
    job_id: str
    name: str
    sha256: str
    audience: Literal["anyone"] = "anyone"
    method: str = "GET"
    until: int


def sign(database: Database, key: ApiKey, artifact: Artifact, expires_at: datetime) -> str:
    """The address of a releasable file.

    Args:
        database: Of this installation.
        key: That asks for it.
        artifact: Releasable.
        expires_at: End of the grant.

    Raises:
        Forbidden: The file is for the owner alone.
    """
    if not artifact.releasable:
        raise Forbidden("Only what may be passed on gets an address without a key.")
    grant = Grant(
        tenant_id=key.tenant_id,
        key_id=key.id,
        job_id=artifact.job_id,
        name=artifact.name,
        sha256=artifact.sha256,
        until=int(expires_at.timestamp()),
    )
    with database.session() as session:
        token = str(token_serializer(session, Purpose.DOWNLOAD_ADDRESS).dumps(grant.model_dump(mode="json")))
    granted, _, signature = token.rpartition(".")
    return f"/v1/downloads/{granted}?signature={signature}"


def redeem(database: Database, artifacts: ArtifactStore, granted: str, signature: str) -> tuple[Grant, Artifact]:
    """The file that an address grants.

    Args:
        database: Of this installation.
        artifacts: Files of jobs.
        granted: From the path of the address.
        signature: From its query.

    Raises:
        NotFound: The file is gone.
        Forbidden: The address was not made here, was changed, has expired, or its key is gone.
    """
    grant = _checked(database, granted, signature)
    if utc_now() >= datetime.fromtimestamp(grant.until, UTC) or not keys.usable(database, grant.key_id):
        raise Forbidden("This address has expired; ask for a new one.")
    artifact = artifacts.releasable(grant.job_id, grant.name)
    if artifact.sha256 != grant.sha256:
        raise Forbidden("The file was replaced since; ask for a new address.")
    return grant, artifact


def _checked(database: Database, granted: str, signature: str) -> Grant:
    with database.session() as session:
        serializer = token_serializer(session, Purpose.DOWNLOAD_ADDRESS)
    try:
        return Grant.model_validate(serializer.loads(f"{granted}.{signature}"))
    except (BadData, ValidationError) as error:
        raise Forbidden("This address was not made by this service, or was changed.") from error
