"""Serves a partner who has a link: the page of one release, and its files. It needs neither a key nor a script.

The address is the secret, so no answer here tells it to other sites, or is kept by caches (`api/http/middleware.py`).
"""

from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request, Response

from datalens_service.api.deps import Services, ServicesDep
from datalens_service.api.http.file_responses import file_response
from datalens_service.api.http.middleware import SHARED
from datalens_service.api.http.threads import run_in_thread
from datalens_service.api.pages.views.rendering import SharedRoute, page
from datalens_service.api.released_jobs import FileName, SelectionDep, images_file, stored_file
from datalens_service.base.errors import NotFound, StateConflict, Unauthorized
from datalens_service.data.export import WRITERS
from datalens_service.services.releases import SAMPLES, Release, read_release
from datalens_service.services.synthetic_files import BundleRequest
from datalens_service.store.access import access_log, quotas, release_links
from datalens_service.store.access.release_links import ReleaseLink
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, released_models
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.jobs.released_models import GENERATOR

_ENDED: Final = "There is nothing at this address: the link is not complete, or has ended. Ask whoever sent it to you."

router = APIRouter(route_class=SharedRoute, prefix=f"{SHARED}{{secret}}", include_in_schema=False)


@dataclass(frozen=True)
class Shared:
    """A link that somebody uses, and the release that it opens."""

    database: Database
    link: ReleaseLink
    release: Release
    job: Job

    def note(self, action: str) -> None:
        """Enter into the journal what is done by the link, before it is done."""
        link = self.link
        access_log.note(self.database, link.tenant_id, actor=link.id, action=action, object_id=link.release_id)


async def open_link(secret: str, request: Request, services: ServicesDep) -> AsyncGenerator[Shared]:
    """Find what a link opens: here is the one door.

    Raises:
        NotFound: It is unknown, has ended, or its release was withheld; nothing tells which.
        RateLimited: It is used too often, or its address tries too many wrong ones.
    """
    # In flight until the block is left, which waits for nothing and needs no thread.
    with ExitStack() as in_flight:
        yield await run_in_thread(_admit, in_flight, secret, request, services)


def _admit(in_flight: ExitStack, secret: str, request: Request, services: Services) -> Shared:
    link = _verify(secret, request, services)
    in_flight.enter_context(services.limits.acquire_link(link.id))
    with services.database.connection() as connection:
        default = services.settings.tenant_requests_per_minute
        requests = quotas.read_requests_per_minute(connection, link.tenant_id, default)
    services.limits.count_tenant(link.tenant_id, requests)
    model = released_models.find(services.database, link.release_id)
    job = jobs.get(services.database, model.job_id or "")
    if job.is_held:
        raise NotFound(_ENDED)
    return Shared(services.database, link, read_release(services.database, services.artifacts, model), job)


def _verify(secret: str, request: Request, services: Services) -> ReleaseLink:
    try:
        with services.limits.count_wrong_keys(request):
            return release_links.verify(services.database, secret)
    except Unauthorized:
        raise NotFound(_ENDED) from None


SharedDep = Annotated[Shared, Depends(open_link)]


@router.get("")
def shared_page(shared: SharedDep, secret: str, request: Request, services: ServicesDep) -> Response:
    shared.note("openReleaseLink")
    return page(
        request,
        "shared",
        release=shared.release,
        base=f"{SHARED}{secret}",
        formats=list(WRITERS.values()),
        key=services.signing_key,
        expires_at=shared.link.expires_at,
        contact=services.settings.contact,
    )


@router.get("/files/{name}")
def shared_file(shared: SharedDep, name: FileName, request: Request, services: ServicesDep) -> Response:
    """Send a file that anybody may get; the grid of samples is a part of the page and not noted."""
    if name != SAMPLES:
        shared.note("downloadByReleaseLink")
    return stored_file(request, services, shared.job, name, inline=name.endswith((".png", ".html")))


@router.get("/images")
def shared_images(shared: SharedDep, selection: SelectionDep, request: Request, services: ServicesDep) -> Response:
    """Send synthetic images, as many as wanted, or more of some classes; that costs no budget."""
    if shared.release.kind != GENERATOR:
        raise StateConflict(f"This release is a {shared.release.kind}: it has no images.")
    shared.note("downloadByReleaseLink")
    made = services.synthetic.get(shared.job, shared.release.schema, selection)
    return images_file(request, made, shared.job.id, selection.format)


@router.get("/archive")
def shared_archive(shared: SharedDep, selection: SelectionDep, request: Request, services: ServicesDep) -> Response:
    """Send the release as a zip for `datalens verify`, under the title and the licence that its owner gave it."""
    shared.note("downloadByReleaseLink")
    release, job = shared.release, shared.job
    if release.kind == GENERATOR:
        bundle = BundleRequest(selection, release.title, release.license)
        made = services.synthetic.bundle(job, release.schema, bundle)
    else:
        made = services.synthetic.model_archive(job, release.license)
    return file_response(request, made.path, made.sha256, media_type="application/zip", name=f"{release.id}.zip")
