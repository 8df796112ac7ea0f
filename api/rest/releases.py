"""The page of everything that a tenant has released: the only one that consumers see."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from fastapi import APIRouter, Response

from datalens_service.api.deps import After, Services, ServicesDep
from datalens_service.api.pages.views.rendering import RELEASES, PageRoute, VisitorDep
from datalens_service.data.dataset import Schema
from datalens_service.data.export import WRITERS
from datalens_service.services.pricing import JobPrivacy
from datalens_service.spec import PlanSummary
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, released_models
from datalens_service.store.jobs.released_models import StoredModel

_PAGE_SIZE: Final = 10
_IMAGES: Final = 1000

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class Release:
    """A released model as anybody may see it; its dataset is not named.

    Attributes:
        job_id: The job that made it; None for an imported one.
        guarantee: The sentence of what it promises; empty if no account here covers it.
        images: Number of images that were packed, or may well be drawn.
    """

    id: str
    kind: str
    job_id: str | None
    created_at: datetime
    schema: Schema
    guarantee: str
    files: frozenset[str]
    images: int

    @classmethod
    def from_model(cls, services: Services, model: StoredModel) -> Self:
        if model.job_id is None:
            schema = Schema.model_validate((model.card or {})["schema"])
            return cls(model.id, model.kind, None, model.created_at, schema, "", frozenset(), _IMAGES)
        job = jobs.get(services.database, model.job_id)
        schema = datasets.get(services.database, job.dataset_id).schema
        price = PlanSummary.model_validate(job.price)
        return cls(
            id=model.id,
            kind=model.kind,
            job_id=job.id,
            created_at=model.created_at,
            schema=schema,
            guarantee=JobPrivacy.from_job(job, price.about(schema)).guarantee,
            files=frozenset(file.name for file in services.artifacts.list_artifacts(job.id) if file.releasable),
            images=int(job.spec["synthetic_images"]),
        )


@router.get(RELEASES, operation_id="showReleases")
def releases_page(visitor: VisitorDep, services: ServicesDep, after: After = None) -> Response:
    """Released models of the tenant with what hangs on each, newest first."""
    page = released_models.list_models(services.database, visitor.tenant_id, limit=_PAGE_SIZE, cursor=after)
    return visitor.page(
        "releases",
        releases=[Release.from_model(services, one) for one in page.items],
        next_cursor=page.next_cursor,
        first_page=after is None,
        formats=list(WRITERS.values()),
    )
