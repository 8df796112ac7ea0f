"""The pages of releases: the list, which is all that consumers see, and the links of one release."""

from typing import Final

from fastapi import APIRouter, Response

from datalens_service.api.deps import After, ObjectId, ServicesDep
from datalens_service.api.pages.views.rendering import RELEASES, PageRoute, VisitorDep
from datalens_service.data.export import WRITERS
from datalens_service.data.export.licence import LICENCES
from datalens_service.services.releases import read_release, read_releases
from datalens_service.store.access import release_links
from datalens_service.store.jobs import released_models

_PAGE_SIZE: Final = 10

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(RELEASES)
def show_releases(visitor: VisitorDep, services: ServicesDep, after: After = None) -> Response:
    """Released models of the tenant with what hangs on each, newest first."""
    page = released_models.list_models(services.database, visitor.tenant_id, limit=_PAGE_SIZE, cursor=after)
    return visitor.page(
        "releases",
        releases=read_releases(services.database, services.artifacts, page.items),
        next_cursor=page.next_cursor,
        first_page=after is None,
        formats=list(WRITERS.values()),
    )


@router.get(f"{RELEASES}/{{release_id}}/links")
def show_release_links(release_id: ObjectId, visitor: VisitorDep, services: ServicesDep) -> Response:
    """Title, licence and links of a release, and forms to change them. Every change is a request to `/v1`."""
    model = released_models.find(services.database, release_id)
    return visitor.page(
        "release_links",
        release=read_release(services.database, services.artifacts, model),
        named=model.title,
        imported=model.imported,
        licences=LICENCES,
        links=release_links.list_links(services.database, release_id),
        used=release_links.find_last_use(services.database, release_id),
    )
