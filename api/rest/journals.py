"""What the caller's tenant has used, and who did what in it."""

from fastapi import APIRouter

from api.deps import Caller, LastKnown, Limit, ServicesDep
from api.openapi.document import ok
from api.schemas.access import AuditPage, AuditRead, UsageRead
from datalens_service.disclosure import public_fields
from datalens_service.store.access import access_log, usage

router = APIRouter(prefix="/v1", tags=["access"])


@router.get(
    "/usage",
    operation_id="getUsage",
    summary="See what was used",
    responses=ok(200, "Counts, bytes and seconds."),
)
def get_usage(services: ServicesDep, key: Caller) -> UsageRead:
    """What budgets were spent is in the account of each dataset: ε of different people does not add up."""
    return UsageRead(**public_fields(usage.count_usage(services.database, key.tenant_id)))


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
    """Who did what to which object. Ids and statuses, nothing of what was in them."""
    entries, head = access_log.list_entries(services.database, key.tenant_id, after=after, limit=limit + 1)
    return AuditPage.cut(entries, limit, AuditRead.from_entry, tenant_id=key.tenant_id, head_hash=head)
