"""Access of the caller's tenant: its keys, what was used with them, and who did what."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Response, status

from datalens_service.api.deps import Caller, LastKnown, Limit, ObjectId, ServicesDep
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import ok, problems
from datalens_service.api.schemas.access import (
    AuditPage,
    AuditRead,
    KeyCreate,
    KeyCreated,
    KeyList,
    KeyRead,
    KeyRotation,
    QuotasRead,
    UsageRead,
)
from datalens_service.base.audience import public_fields
from datalens_service.store.access import access_log, keys, quotas, usage

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["access"])


@router.post(
    "/api-keys",
    operation_id="createApiKey",
    summary="Make an API key",
    status_code=status.HTTP_201_CREATED,
    responses=ok(201, "The key, which is shown only once.", headers=("Location",)),
)
def create_key(
    request: Annotated[KeyCreate, Body(openapi_examples=examples.KEYS)],
    services: ServicesDep,
    key: Caller,
    response: Response,
) -> KeyCreated:
    """The key belongs to the caller's own tenant."""
    made, plain = keys.create(services.database, request.for_tenant(key.tenant_id))
    return _created(response, made, plain)


@router.get(
    "/api-keys",
    operation_id="listApiKeys",
    summary="List API keys",
    responses=ok(200, "All keys of the tenant."),
)
def list_keys(services: ServicesDep, key: Caller) -> KeyList:
    """Revoked and expired ones stay in the list."""
    noted = access_log.find_last_access(services.database, key.tenant_id)
    listed = keys.list_keys(services.database, key.tenant_id)
    return KeyList(items=[KeyRead.from_key(one, noted.get(one.id)) for one in listed])


@router.get(
    "/api-keys/{key_id}",
    operation_id="getApiKey",
    summary="Read the stored facts about an API key",
    responses=ok(200, "Its name, role, scopes and expiry."),
)
def get_key(key_id: ObjectId, services: ServicesDep) -> KeyRead:
    """The key itself is kept nowhere."""
    return KeyRead.from_key(keys.get(services.database, key_id))


@router.post(
    "/api-keys/{key_id}:rotate",
    operation_id="rotateApiKey",
    summary="Replace an API key by a new one like it",
    status_code=status.HTTP_201_CREATED,
    responses={
        **ok(201, "The new key, which is shown only once.", headers=("Location",)),
        **problems("state-conflict"),
    },
)
def rotate_key(
    key_id: ObjectId,
    services: ServicesDep,
    response: Response,
    request: Annotated[KeyRotation | None, Body(openapi_examples=examples.ROTATIONS)] = None,
) -> KeyCreated:
    """The old one goes on working for `overlap_seconds`, so that nobody is locked out meanwhile."""
    overlap = timedelta(seconds=(request or KeyRotation()).overlap_seconds)
    return _created(response, *keys.rotate(services.database, key_id, overlap))


@router.delete(
    "/api-keys/{key_id}",
    operation_id="revokeApiKey",
    summary="Revoke an API key",
    responses=ok(200, "The key no longer works."),
)
def revoke_key(key_id: ObjectId, services: ServicesDep) -> KeyRead:
    """The key stops working at once, with all download addresses it asked for. Repeatable."""
    return KeyRead.from_key(keys.revoke(services.database, key_id))


@router.get(
    "/usage",
    operation_id="getUsage",
    summary="See what was used",
    responses=ok(200, "Counts, bytes and seconds."),
)
def get_usage(services: ServicesDep, key: Caller) -> UsageRead:
    """The account of each dataset states the budgets that were spent: ε of different people does not add up."""
    limits = QuotasRead(**vars(quotas.read(services.database, key.tenant_id)))
    return UsageRead(**public_fields(usage.count_usage(services.database, key.tenant_id)), quotas=limits)


@router.get(
    "/audit",
    operation_id="listAuditEntries",
    summary="Read the audit journal",
    responses=ok(200, "A page of the journal, oldest first."),
)
def list_audit(
    services: ServicesDep,
    key: Caller,
    after: LastKnown = 0,
    limit: Limit = 100,
) -> AuditPage:
    """Entries say who did what to which object: ids and statuses, nothing of what was in them."""
    entries, head = access_log.list_entries(services.database, key.tenant_id, after=after, limit=limit + 1)
    return AuditPage.cut(entries, limit, AuditRead.from_entry, tenant_id=key.tenant_id, head_hash=head)


def _created(response: Response, made: keys.ApiKey, plain: str) -> KeyCreated:
    response.headers["Location"] = f"/v1/api-keys/{made.id}"
    return KeyCreated(key=KeyRead.from_key(made), api_key=plain)
