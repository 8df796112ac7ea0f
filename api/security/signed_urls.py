"""Addresses that fetch one releasable file without a key, until they expire.

    /v1/downloads/{base64url of JSON: what is granted}?signature={base64url of HMAC-SHA256 under our key}

What is granted names tenant, job, file, digest, audience, the key that asked for it, and the end. Whoever changes one
of them has no signature for it; a key that was revoked takes its addresses with it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from datalens_service.clock import utc_now
from datalens_service.errors import Forbidden
from datalens_service.store.access import keys
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import Artifact, ArtifactStore
from datalens_service.store.datasets.fingerprints import installation_key


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
    content = grant.model_dump_json().encode()
    return f"/v1/downloads/{_encoded(content)}?signature={_encoded(_signature(database, content))}"


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
    try:
        raw, given = _decoded(granted), _decoded(signature)
        if hmac.compare_digest(_signature(database, raw), given):
            return Grant.model_validate_json(raw)
    except (binascii.Error, ValidationError):
        pass
    raise Forbidden("This address was not made by this service, or was changed.")


def _signature(database: Database, content: bytes) -> bytes:
    with database.session() as session:
        secret = hmac.digest(installation_key(session, lock=False), b"download addresses", "sha256")
    return hmac.digest(secret, content, "sha256")


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _encoded(raw) != text:
        raise binascii.Error
    return raw
