"""Synthetic images by the hash of their pixels: the jobs that made one that lost its marks."""

from typing import Annotated

from fastapi import APIRouter, Query

from datalens_service.api.deps import Caller, ServicesDep
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi.document import ok
from datalens_service.api.schemas.releases import ImageOriginList, ImageOriginRead
from datalens_service.store.jobs import released_images

router = APIRouter(prefix="/v1/released-images", route_class=StrictRoute, tags=["downloads"])

PixelHash = Annotated[
    str,
    Query(
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 of “datalens-pixels/1 HEIGHT WIDTH”, a newline and the pixels as 8-bit RGB, row by row.",
    ),
]


@router.get(
    "",
    summary="Find the jobs that made a synthetic image",
    responses=ok(200, "The jobs, oldest first, at most 100; none proves nothing.", "invalid-input"),
)
def list_released_images(pixel_hash: PixelHash, services: ServicesDep, key: Caller) -> ImageOriginList:
    """Knows the synthetic images that jobs packed, and no private image."""
    found = released_images.find(services.database, key.tenant_id, pixel_hash)
    return ImageOriginList(items=[ImageOriginRead.from_origin(one) for one in found])
