"""What the caller's tenant has used, and who did what in it."""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from api.deps import MAXIMUM_PAGE, Caller, ServicesDep
from api.http.strictness import DIGITS
from api.openapi.document import ok
from api.schemas.access import AuditPage, AuditRead, UsageRead
from datalens_service.disclosure import public_fields
from datalens_service.store.access import access_log, usage

router = APIRouter(prefix="/v1", tags=["access"])
_LARGEST: Final = 2**63 - 1


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
    after: Annotated[int, Query(ge=0, le=_LARGEST, description="Number of the last entry that is known."), DIGITS] = 0,
    limit: Annotated[int, Query(ge=1, le=MAXIMUM_PAGE, description="Page size."), DIGITS] = 100,
) -> AuditPage:
    """Who did what to which object. Ids and statuses, nothing of what was in them."""
    entries, head = access_log.list_entries(services.database, key.tenant_id, after=after, limit=limit + 1)
    more = len(entries) > limit
    return AuditPage(
        items=[AuditRead.from_entry(entry) for entry in entries[:limit]],
        has_more=more,
        next_cursor=entries[limit - 1].seq if more else None,
        tenant_id=key.tenant_id,
        head_hash=head,
    )
