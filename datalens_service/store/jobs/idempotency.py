"""The same request under the same key, chosen by the client, is the same job."""

import hashlib
import json
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.base.errors import StateConflict
from datalens_service.store.schema.tables import DEFAULT_TENANT, JobRow


def request_fingerprint(dataset_id: str, spec: dict[str, Any]) -> str:
    """SHA-256 of what was asked."""
    canonical = json.dumps([dataset_id, spec], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def scope_key(key: str | None, tenant_id: str) -> str | None:
    """The key as it is kept: tenants do not meet in it. That of the first tenant is kept as it came."""
    if key is None or tenant_id == DEFAULT_TENANT:
        return key
    return hashlib.sha256(f"{tenant_id}\0{key}".encode()).hexdigest()


def earlier_job(session: Session, key: str | None, fingerprint: str) -> JobRow | None:
    """The job that the key made already.

    Raises:
        StateConflict: The key belongs to another request.
    """
    if key is None:
        return None
    row = session.scalars(select(JobRow).where(JobRow.idempotency_key == key)).one_or_none()
    if row is not None and row.request_fingerprint != fingerprint:
        raise key_conflict()
    return row


def key_conflict() -> StateConflict:
    """The error of a key that stands for another request."""
    return StateConflict("The same was asked before with other contents: ⟦ask_anew⟧.")
