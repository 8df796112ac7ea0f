"""Released images of a job, class by class."""

from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from datalens_service.api.deps import ObjectId, Services, ServicesDep
from datalens_service.api.pages.views import image_viewer
from datalens_service.api.pages.views.rendering import PageRoute, Visitor, VisitorDep
from datalens_service.api.schemas.jobs import JobRead
from datalens_service.api.security.permissions import check_scope
from datalens_service.base.errors import InvalidInput, StateConflict
from datalens_service.services.synthetic_files import Selection
from datalens_service.store.access.roles import Scope
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job
from datalens_service.subprocesses.sampling import PACKED_IMAGES

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class Asked:
    """The images that a visitor asks to see."""

    label: Annotated[int, Query(ge=0, description="Class.")] = 0
    page: Annotated[int, Query(ge=0, le=10_000)] = 0
    seed: Annotated[
        int | None,
        Query(ge=0, lt=2**31, description="Seed that draws other images; left out, the packed ones are shown."),
    ] = None
    image: Annotated[
        int | None, Query(ge=1, le=image_viewer.IMAGES_PER_PAGE, description="Enlarges this image of the page, from 1.")
    ] = None


@wraps(Asked)
async def _read_asked(**asked: Any) -> Asked:
    return Asked(**asked)


AskedDep = Annotated[Asked, Depends(_read_asked)]


@router.get("/jobs/{job_id}/images")
def show_job_images(job_id: ObjectId, visitor: VisitorDep, services: ServicesDep, asked: AskedDep) -> Response:
    """A hundred images of a class, one of them enlarged if asked, and the way to the next hundred.

    With a seed, they are drawn anew.
    """
    job, dataset = _released(services, visitor, job_id, asked.seed)
    counts = [image_viewer.IMAGES_PER_PAGE] * dataset.schema.num_classes
    if asked.seed is None:
        counts = image_viewer.count_packed(services.artifacts.releasable(job.id, PACKED_IMAGES).path, dataset.schema)
    of_class = counts[asked.label] if asked.label < len(counts) else 0
    pages, count = image_viewer.pages_of_class(of_class), image_viewer.images_on_page(of_class, asked.page)
    if asked.label >= len(counts) or asked.page >= pages or (asked.image or 0) > count:
        raise InvalidInput("The job has packed no such images.")
    drawable = image_viewer.fits(dataset.schema, image_viewer.count_drawn(dataset.schema))
    shown = {**vars(asked), "pages": pages, "count": count, "drawable": drawable}
    shown["even"] = max(counts) - min(counts) <= 1
    return visitor.page("images", job=JobRead.from_job(job), dataset=dataset, **shown)


@router.get("/jobs/{job_id}/images.png")
def show_job_images_picture(job_id: ObjectId, visitor: VisitorDep, services: ServicesDep, asked: AskedDep) -> Response:
    """The same as a picture; a single image if one is named."""
    job, dataset = _released(services, visitor, job_id, asked.seed)
    if asked.seed is None:
        path = services.artifacts.releasable(job.id, PACKED_IMAGES).path
    else:
        drawn = Selection("npz", per_class=image_viewer.IMAGES_PER_PAGE, seed=asked.seed)
        path = services.synthetic.get(job, dataset.schema, drawn).path
    if asked.image is None:
        picture = image_viewer.draw_page(path, dataset.schema, asked.label, asked.page, services.synthetic.credentials)
    else:
        number = asked.page * image_viewer.IMAGES_PER_PAGE + asked.image - 1
        picture = image_viewer.draw_image(path, dataset.schema, asked.label, number, services.synthetic.credentials)
    return Response(picture, media_type="image/png")


def _released(services: Services, visitor: Visitor, job_id: str, seed: int | None) -> tuple[Job, StoredDataset]:
    """A job with images to page through, those it has packed or drawn ones, and its dataset.

    Raises:
        StateConflict: There are none, or too many bytes of them.
    """
    check_scope(visitor.key, Scope.RELEASES_READ)
    job = jobs.get(services.database, job_id)
    if job.released_at is None or job.result != "generator":
        raise StateConflict("This job has no images to look at.")
    dataset = datasets.get(services.database, job.dataset_id)
    images = int(job.spec["synthetic_images"]) if seed is None else image_viewer.count_drawn(dataset.schema)
    if not image_viewer.fits(dataset.schema, images):
        raise StateConflict("These are too many large images for a page; download them to look at them.")
    return job, dataset
