"""Pre-signed, expiring download URLs for single releasable files.

    /v1/downloads/{base64url of JSON: what is granted}?signature={by a key for this purpose alone}

A grant names tenant, job, file, digest, audience, the key that asked for it, and the expiry. Changing one of them
invalidates the signature. Revoking a key revokes its URLs.
"""

from datetime import datetime
from typing import Final, Literal

from itsdangerous import BadData
from itsdangerous.encoding import base64_decode, base64_encode
from pydantic import ValidationError

from datalens_service.base.errors import Forbidden
from datalens_service.base.fields import Frozen
from datalens_service.store.access import keys
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.datasets.artifacts import Artifact, ArtifactStore
from datalens_service.store.installation import Purpose, create_signer
from datalens_service.store.jobs import approvals, jobs

_EXPIRED: Final = "This address has expired; ask for a new one."


class Grant(Frozen):
    """Permission that an address carries: one GET of one file as it is now."""

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

    Raises:
        Forbidden: The file is for the owner alone.
    """
    if not artifact.releasable:
        raise Forbidden("Only files that may be passed on get an address without a key.")
    grant = Grant(
        tenant_id=key.tenant_id,
        key_id=key.id,
        job_id=artifact.job_id,
        name=artifact.name,
        sha256=artifact.sha256,
        until=int(expires_at.timestamp()),
    )
    content = base64_encode(grant.model_dump_json())
    with database.session() as session:
        signature = create_signer(session, Purpose.DOWNLOAD).get_signature(content)
    return f"/v1/downloads/{content.decode()}?signature={signature.decode()}"


def redeem(database: Database, artifacts: ArtifactStore, granted: str, signature: str) -> tuple[Grant, Artifact]:
    """The file that an address grants.

    Raises:
        NotFound: The file is gone.
        Forbidden: The address was not made here, was changed, has expired, or its key is gone.
        StateConflict: The result was withheld since.
    """
    grant = _verify(database, granted, signature)
    if not keys.usable(database, grant.key_id):
        raise Forbidden(_EXPIRED)
    approvals.refuse_held(jobs.get(database, grant.job_id).approval)
    artifact = artifacts.releasable(grant.job_id, grant.name)
    if artifact.sha256 != grant.sha256:
        raise Forbidden("The file was replaced since; ask for a new address.")
    return grant, artifact


def _verify(database: Database, granted: str, signature: str) -> Grant:
    with database.session() as session:
        now, signer = read_database_clock(session), create_signer(session, Purpose.DOWNLOAD)
    try:
        grant = Grant.model_validate_json(base64_decode(signer.unsign(f"{granted}.{signature}")))
    except (BadData, ValidationError):
        raise Forbidden("This address was not made by this service, or was changed.") from None
    if now.timestamp() >= grant.until:
        raise Forbidden(_EXPIRED)
    return grant
