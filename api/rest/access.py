"""Access of the caller's tenant: its keys, what was used with them, and who did what."""

from datetime import timedelta
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Response

from datalens_service.api.deps import LARGEST, Caller, LastKnown, Limit, ObjectId, ServicesDep
from datalens_service.api.http.strictness import DIGITS, StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import ok
from datalens_service.api.schemas.access import (
    OUTCOME,
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
from datalens_service.base.fields import Moment
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.store.access import access_log, keys, quotas, usage
from datalens_service.store.access.access_log import EntryFilter

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["access"])


@router.post(
    "/api-keys",
    summary="Make an API key",
    responses=ok(201, "The key, which is shown only once.", headers=("Location",)),
)
def create_api_key(
    request: Annotated[KeyCreate, Body(openapi_examples=examples.KEYS)],
    services: ServicesDep,
    key: Caller,
    response: Response,
) -> KeyCreated:
    """The key belongs to the caller's own tenant."""
    made, plain = keys.create(services.database, request.made_with(key))
    return _created(response, made, plain)


@router.get("/api-keys", summary="List API keys", responses=ok(200, "All keys of the tenant."))
def list_api_keys(services: ServicesDep, key: Caller) -> KeyList:
    """Revoked and expired ones stay in the list."""
    noted = access_log.find_last_access(services.database, key.tenant_id)
    listed = keys.list_keys(services.database, key.tenant_id)
    return KeyList(items=[KeyRead.from_key(one, noted.get(one.id)) for one in listed])


@router.get(
    "/api-keys/{key_id}",
    summary="Read the stored facts about an API key",
    responses=ok(200, "Its name, role, scopes and expiry."),
)
def get_api_key(key_id: ObjectId, services: ServicesDep) -> KeyRead:
    """The key itself is kept nowhere."""
    return KeyRead.from_key(keys.get(services.database, key_id))


@router.post(
    "/api-keys/{key_id}:rotate",
    summary="Replace an API key by a new one like it",
    responses=ok(201, "The new key, which is shown only once.", "state-conflict", headers=("Location",)),
)
def rotate_api_key(
    key_id: ObjectId,
    services: ServicesDep,
    key: Caller,
    response: Response,
    request: Annotated[KeyRotation | None, Body(openapi_examples=examples.ROTATIONS)] = None,
) -> KeyCreated:
    """The old one goes on working for `overlap_seconds`, so that nobody is locked out meanwhile."""
    overlap = timedelta(seconds=(request or KeyRotation()).overlap_seconds)
    return _created(response, *keys.rotate(services.database, key_id, overlap, key.id))


@router.delete("/api-keys/{key_id}", summary="Revoke an API key", responses=ok(200, "The key no longer works."))
def revoke_api_key(key_id: ObjectId, services: ServicesDep) -> KeyRead:
    """The key stops working at once, with all download addresses it asked for. Repeatable."""
    return KeyRead.from_key(keys.revoke(services.database, key_id))


@router.get("/usage", summary="See what was used", responses=ok(200, "Counts, bytes and seconds."))
def get_usage(services: ServicesDep, key: Caller) -> UsageRead:
    """The account of each dataset states the budgets that were spent: ε of different people does not add up."""
    limits = QuotasRead(**vars(quotas.read(services.database, key.tenant_id)))
    return UsageRead(**public_fields(usage.count_usage(services.database, key.tenant_id)), quotas=limits)


@router.get("/audit", summary="Read the audit journal", responses=ok(200, "A page of the journal."))
def list_audit_entries(
    services: ServicesDep,
    key: Caller,
    actor: Annotated[
        str | None, Query(max_length=200, description="Only entries of this key or person, by id or name.")
    ] = None,
    object_id: Annotated[
        str | None, Query(max_length=64, pattern=IDENTIFIER, description="Only entries about this object.")
    ] = None,
    outcome: Annotated[
        str | None,
        Query(pattern=OUTCOME, description="Only entries with this HTTP status, or `4xx` for all of a kind."),
    ] = None,
    since: Annotated[Moment | None, Query(description="Only entries of then or later.")] = None,
    until: Annotated[Moment | None, Query(description="Only entries before.")] = None,
    order: Annotated[
        Literal["oldest", "newest"], Query(description="What comes first; the seals follow each other oldest first.")
    ] = "oldest",
    after: LastKnown = 0,
    before: Annotated[
        int | None,
        Query(ge=1, le=LARGEST, description="Newest first: the number of the last entry that is known."),
        DIGITS,
    ] = None,
    limit: Limit = 100,
) -> AuditPage:
    """Entries say who did what to which object: ids and statuses, nothing of what was in them."""
    which = EntryFilter(actor, object_id, outcome, since, until)
    if order == "oldest":
        read = partial(access_log.list_entries, after=after)
    else:
        read = partial(access_log.list_latest, before=before)
    entries, head = read(services.database, key.tenant_id, which, limit=limit + 1)
    named = keys.find_actors(services.database, {entry.actor for entry in entries[:limit]})
    facts = {"tenant_id": key.tenant_id, "head_hash": head, "actors": list(named.values())}
    return AuditPage.cut(entries, limit, AuditRead.from_entry, **facts)


def _created(response: Response, made: keys.ApiKey, plain: str) -> KeyCreated:
    response.headers["Location"] = f"/v1/api-keys/{made.id}"
    return KeyCreated(key=KeyRead.from_key(made), api_key=plain)
