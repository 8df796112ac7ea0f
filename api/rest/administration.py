"""Retention of the caller's tenant; tenants, their quotas and their removal, for the operator."""

from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Body, Query

from datalens_service.api.deps import Caller, ObjectId, Services, ServicesDep
from datalens_service.api.http.strictness import DIGITS, StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import ok
from datalens_service.api.schemas.administration import (
    DueList,
    QuotasChange,
    RetentionDays,
    RetentionRead,
    TenantList,
    TenantRead,
    TenantRemoval,
)
from datalens_service.base.errors import InvalidInput
from datalens_service.services import removal, tenant_removal
from datalens_service.store.access import quotas, retention, tenants
from datalens_service.store.access.retention import EVERYWHERE, LONGEST
from datalens_service.store.access.tenants import Tenant

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["tenants"])
_MOST_LISTED: Final = 1000


@router.get(
    "/retention",
    summary="Read for how many days things are kept",
    responses=ok(200, "The policies of the installation and of the tenant."),
)
def get_retention(services: ServicesDep, key: Caller) -> RetentionRead:
    """The shorter time of both counts for each kind of thing. Budgets and charges stay for ever."""
    return _read_retention(services, key.tenant_id)


@router.put(
    "/retention",
    summary="Set for how many days things of the tenant are kept",
    responses=ok(200, "The policies from now on."),
)
def update_retention(
    request: Annotated[RetentionDays, Body(openapi_examples=examples.RETENTION)], services: ServicesDep, key: Caller
) -> RetentionRead:
    """Things that are old enough go within a minute: ask `GET /v1/retention/preview` first, with the same days."""
    retention.change(services.database, key.tenant_id, request.policy(), actor=key.id)
    services.remover.wake()
    return _read_retention(services, key.tenant_id)


@router.put(
    "/retention/everywhere",
    summary="Set for how many days things of all tenants are kept at most",
    responses=ok(200, "The policies from now on."),
)
def update_installation_retention(
    request: Annotated[RetentionDays, Body(openapi_examples=examples.RETENTION)], services: ServicesDep, key: Caller
) -> RetentionRead:
    """For owners' keys of the first tenant, which runs the service."""
    retention.change(services.database, EVERYWHERE, request.policy(), actor=key.id)
    services.remover.wake()
    return _read_retention(services, key.tenant_id)


Within = Annotated[int, Query(ge=0, le=LONGEST, description="Days from now; what goes later is not listed."), DIGITS]
OfKind = Annotated[int | None, Query(ge=0, le=LONGEST, description="Days to be tried in place of the policy."), DIGITS]


@router.get(
    "/retention/preview",
    summary="See what goes, and when",
    responses=ok(200, "At most 1,000 things and kinds of lines, soonest first."),
)
def list_due_removals(
    services: ServicesDep,
    key: Caller,
    within_days: Within = 30,
    datasets: OfKind = None,
    results: OfKind = None,
    uploads: OfKind = None,
    events: OfKind = None,
    deliveries: OfKind = None,
    journal: OfKind = None,
) -> DueList:
    """With a number for any kind, a policy of these numbers alone is tried. Nothing is removed."""
    tried = retention.Retention(datasets, results, uploads, events, deliveries, journal)
    policy = None if tried == retention.FOR_EVER else tried
    found = removal.preview(services.database, [key.tenant_id], timedelta(days=within_days), policy)
    return DueList.from_due(found[:_MOST_LISTED])


@router.get("/tenants", summary="List tenants", responses=ok(200, "All tenants of the installation."))
def list_tenants(services: ServicesDep) -> TenantList:
    """For owners' keys of the first tenant, which runs the service."""
    return TenantList(items=[_read(services, one) for one in tenants.list_tenants(services.database)])


@router.get(
    "/tenants/{tenant_id}",
    summary="Read a tenant",
    responses=ok(200, "Its quotas and retention; once it was removed, the receipt."),
)
def get_tenant(tenant_id: ObjectId, services: ServicesDep) -> TenantRead:
    """For owners' keys of the first tenant."""
    return _read(services, tenants.get(services.database, tenant_id))


@router.put(
    "/tenants/{tenant_id}/quotas",
    summary="Set what a tenant may have at once",
    responses=ok(200, "The tenant with its quotas."),
)
def update_tenant_quotas(
    tenant_id: ObjectId,
    request: Annotated[QuotasChange, Body(openapi_examples=examples.QUOTAS)],
    services: ServicesDep,
    key: Caller,
) -> TenantRead:
    """Everything that it has already stays."""
    quotas.change(services.database, tenant_id, request.quotas(), actor=key.id)
    return _read(services, tenants.get(services.database, tenant_id))


@router.post(
    "/tenants/{tenant_id}:remove",
    summary="Remove a tenant with everything but its budgets",
    responses=ok(202, "Its keys have ended; the rest leaves within minutes.", "state-conflict"),
)
def delete_tenant(
    tenant_id: ObjectId,
    request: Annotated[TenantRemoval, Body(openapi_examples=examples.TENANT_REMOVAL)],
    services: ServicesDep,
    key: Caller,
) -> TenantRead:
    """Jobs are cancelled. Poll `GET /v1/tenants/{tenant_id}` for the signed receipt. Repeatable."""
    tenant = tenants.get(services.database, tenant_id)
    if request.name != tenant.name:
        raise InvalidInput("This is not the name of the tenant; nothing was done.")
    tenant_removal.begin(services.database, tenant.id, actor=key.id)
    services.remover.wake()
    return _read(services, tenants.get(services.database, tenant_id))


def _read_retention(services: Services, tenant_id: str) -> RetentionRead:
    with services.database.session() as session:
        everywhere, own = retention.read(session), retention.read(session, tenant_id)
    days = (RetentionDays.from_policy(policy) for policy in (everywhere, own, everywhere.narrowed(own)))
    return RetentionRead(**dict(zip(("everywhere", "own", "effective"), days, strict=True)))


def _read(services: Services, tenant: Tenant) -> TenantRead:
    with services.database.session() as session:
        policy = retention.read_effective(session, tenant.id)
    return TenantRead.from_tenant(tenant, quotas.read(services.database, tenant.id), policy)
