"""Releases in words, and links by which one partner gets one of them without a key."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from datalens_service.api.deps import After, Caller, Limit, ObjectId, Services, ServicesDep
from datalens_service.api.http.middleware import SHARED
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import ok
from datalens_service.api.schemas.common import Page
from datalens_service.api.schemas.releases import (
    ReleaseChanges,
    ReleaseLinkCreate,
    ReleaseLinkCreated,
    ReleaseLinkList,
    ReleaseLinkRead,
    ReleaseRead,
)
from datalens_service.base.errors import StateConflict
from datalens_service.services.releases import read_release, read_releases
from datalens_service.store.access import release_links
from datalens_service.store.jobs import released_models
from datalens_service.store.jobs.released_models import StoredModel

router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["releases"])


@router.get("/releases", summary="List releases, newest first", responses=ok(200, "A page of the list."))
def list_releases(services: ServicesDep, key: Caller, limit: Limit = 20, after: After = None) -> Page[ReleaseRead]:
    """Generators and classifiers of all jobs, and imported generators, with what each is and promises."""
    page = released_models.list_models(services.database, key.tenant_id, limit=limit, cursor=after)
    read = read_releases(services.database, services.artifacts, page.items)
    return Page.build(page, map(ReleaseRead.from_release, read))


@router.get("/releases/{release_id}", summary="Read what a release is and promises", responses=ok(200, "The release."))
def get_release(release_id: ObjectId, services: ServicesDep) -> ReleaseRead:
    """Nothing in it is private. The id is that of the generator or classifier."""
    return _read(services, released_models.find(services.database, release_id))


@router.patch(
    "/releases/{release_id}",
    summary="Give a release a public title and a licence",
    responses=ok(200, "The release as it is now."),
)
def update_release(
    release_id: ObjectId,
    changes: Annotated[ReleaseChanges, Body(openapi_examples=examples.RELEASE_CHANGES)],
    services: ServicesDep,
) -> ReleaseRead:
    """Both are public; the name of the job stays yours."""
    named = changes.model_dump()
    return _read(services, released_models.describe(services.database, release_id, **named))


@router.post(
    "/releases/{release_id}/links",
    summary="Make a link of one partner to one release",
    responses=ok(201, "The link, whose address is shown only once.", "state-conflict", headers=("Location",)),
)
def create_release_link(
    release_id: ObjectId,
    request: Annotated[ReleaseLinkCreate, Body(openapi_examples=examples.RELEASE_LINKS)],
    services: ServicesDep,
    key: Caller,
    response: Response,
) -> ReleaseLinkCreated:
    """The address opens this release, and nothing else, to whoever has it, until the link ends.

    It ends at `expires_at`, when it is revoked, or when the key that made it is revoked. Each use is in the audit
    journal under the id of the link. An imported generator gets none: its cost is unknown here.
    """
    if released_models.find(services.database, release_id).imported:
        raise StateConflict("This generator was imported: no account here covers it, so it is not shared by a link.")
    link, secret = release_links.create(
        services.database, key, release_id, partner=request.partner, expires_at=request.expires_at
    )
    response.headers["Location"] = f"/v1/release-links/{link.id}"
    return ReleaseLinkCreated(link=ReleaseLinkRead.from_link(link), url=f"{SHARED}{secret}")


@router.get(
    "/releases/{release_id}/links", summary="List the links to a release", responses=ok(200, "All links, oldest first.")
)
def list_release_links(release_id: ObjectId, services: ServicesDep) -> ReleaseLinkList:
    """Ended ones stay in the list."""
    used = release_links.find_last_use(services.database, release_id)
    listed = release_links.list_links(services.database, release_id)
    return ReleaseLinkList(items=[ReleaseLinkRead.from_link(link, used.get(link.id)) for link in listed])


@router.get(
    "/release-links/{link_id}",
    summary="Read the stored facts about a link",
    responses=ok(200, "Whom it is for, and until when."),
)
def get_release_link(link_id: ObjectId, services: ServicesDep) -> ReleaseLinkRead:
    """Its address is kept nowhere."""
    return ReleaseLinkRead.from_link(release_links.get(services.database, link_id))


@router.delete("/release-links/{link_id}", summary="Revoke a link", responses=ok(200, "The link no longer works."))
def revoke_release_link(link_id: ObjectId, services: ServicesDep) -> ReleaseLinkRead:
    """It ends at once. What was downloaded by it stays where it is. Repeatable."""
    return ReleaseLinkRead.from_link(release_links.revoke(services.database, link_id))


def _read(services: Services, model: StoredModel) -> ReleaseRead:
    return ReleaseRead.from_release(read_release(services.database, services.artifacts, model))
