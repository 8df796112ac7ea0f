"""Pages beside the keys: webhooks and their deliveries, the audit journal, usage. Changes are requests to `/v1`."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Response

from datalens_service.api.deps import LARGEST, After, ObjectId, ServicesDep
from datalens_service.api.http.strictness import DIGITS
from datalens_service.api.pages.views.rendering import PageRoute, VisitorDep
from datalens_service.api.schemas.access import OUTCOME
from datalens_service.base.audience import public_part
from datalens_service.services import removal
from datalens_service.store.access import access_log, keys, quotas, retention, tenants, usage, webhooks
from datalens_service.store.access.access_log import EntryFilter
from datalens_service.store.database_clock import read_clock
from datalens_service.store.jobs.events import EventType

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_PAGE_SIZE: Final = 50
_DAY: Final = timedelta(days=1)
_SOON: Final = timedelta(days=30)
KINDS: Final = {
    "datasets": "Data sets",
    "results": "Results of jobs",
    "uploads": "Uploads that could not be used",
    "events": "Events of jobs",
    "deliveries": "Messages to webhooks",
    "journal": "Entries of the audit journal",
}
"""Words for what retention removes."""
_SENT: Final = tuple(event for event in EventType if event is not EventType.PROGRESS)


@router.get("/webhooks")
def show_webhooks(visitor: VisitorDep, services: ServicesDep) -> Response:
    return visitor.page("webhooks", webhooks=webhooks.list_webhooks(services.database, visitor.tenant_id), events=_SENT)


@router.get("/webhooks/{webhook_id}")
def show_webhook(webhook_id: ObjectId, visitor: VisitorDep, services: ServicesDep, after: After = None) -> Response:
    hook = webhooks.get(services.database, webhook_id)
    deliveries = webhooks.list_deliveries(services.database, webhook_id, limit=_PAGE_SIZE, cursor=after)
    return visitor.page("webhook", webhook=hook, deliveries=deliveries.items, next_cursor=deliveries.next_cursor)


@router.get("/journal")
def show_audit_entries(
    visitor: VisitorDep,
    services: ServicesDep,
    actor: Annotated[str, Query(max_length=200)] = "",
    object_id: Annotated[str, Query(max_length=64)] = "",
    outcome: Annotated[str, Query(pattern=f"^$|{OUTCOME}")] = "",
    since: Annotated[date | Literal[""], Query()] = "",
    until: Annotated[date | Literal[""], Query()] = "",
    before: Annotated[int | None, Query(ge=1, le=LARGEST), DIGITS] = None,
) -> Response:
    """Show who did what, newest first: all of it, or what the filters leave."""
    which = EntryFilter(
        actor=actor.strip() or None,
        object_id=object_id.strip() or None,
        outcome=outcome or None,
        since=_begin_of_day(since) if since else None,
        # The day that is named is shown, too.
        until=_begin_of_day(until) + _DAY if until else None,
    )
    entries, _ = access_log.list_latest(
        services.database, visitor.tenant_id, which, before=before, limit=_PAGE_SIZE + 1
    )
    shown = entries[:_PAGE_SIZE]
    filters = {"actor": actor, "object_id": object_id, "outcome": outcome, "since": since, "until": until}
    return visitor.page(
        "journal",
        entries=shown,
        actors=keys.find_actors(services.database, {entry.actor for entry in shown}),
        persons=sorted({key.name for key in keys.list_keys(services.database, visitor.tenant_id)}),
        filters=filters,
        filtered=which != EntryFilter(),
        older=shown[-1].seq if len(entries) > _PAGE_SIZE else None,
    )


def _begin_of_day(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


@router.get("/usage")
def show_usage(visitor: VisitorDep, services: ServicesDep) -> Response:
    used = public_part(usage.count_usage(services.database, visitor.tenant_id))
    return visitor.page("usage", usage=used, quotas=quotas.read(services.database, visitor.tenant_id))


@router.get("/retention")
def show_retention(visitor: VisitorDep, services: ServicesDep) -> Response:
    """Show for how long things are kept, and what goes next."""
    with services.database.session() as session:
        everywhere, own = retention.read(session), retention.read(session, visitor.tenant_id)
    policies = {"everywhere": everywhere, "own": own, "effective": everywhere.narrowed(own)}
    found = removal.preview(services.database, [visitor.tenant_id], _SOON)
    kinds = tuple(KINDS.items())
    shown = {name: vars(policy) for name, policy in policies.items()}
    more = len(found) - _PAGE_SIZE
    return visitor.page("retention", kinds=kinds, meanings=KINDS, due=found[:_PAGE_SIZE], more=max(0, more), **shown)


@router.get("/tenants")
def show_tenants(visitor: VisitorDep, services: ServicesDep) -> Response:
    database = services.database
    listed = [
        (one, quotas.read(database, one.id), vars(quotas.read_own(database, one.id)))
        for one in tenants.list_tenants(database)
    ]
    return visitor.page("tenants", tenants=listed, defaults=services.settings.default_quotas)


@router.get("/keys")
def show_api_keys(visitor: VisitorDep, services: ServicesDep, ended: Literal["", "true"] = "") -> Response:
    """Keys and persons that may come in, or those that may no more, and a form for a new key."""
    listed = keys.list_keys(services.database, visitor.tenant_id)
    noted = access_log.find_last_access(services.database, visitor.tenant_id)
    now = read_clock(services.database)
    split = {True: list[keys.ApiKey](), False: list[keys.ApiKey]()}
    for key in listed:
        split[not key.works(now)].append(key)
    shown = split[bool(ended)]
    return visitor.page("keys", keys=shown, noted=noted, ended=bool(ended), others=len(listed) - len(shown))
