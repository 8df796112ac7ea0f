"""Releases as anybody may see them: released and public values, and what their owner typed for others. Nothing else."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from datalens_service.data.dataset import Schema
from datalens_service.report.summary import ReleaseSummary, summarize_release
from datalens_service.services.pricing import JobPrivacy
from datalens_service.services.synthetic_files import USUAL_IMAGES
from datalens_service.spec import PlanSummary
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.artifacts import Artifact, ArtifactStore
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.jobs.released_models import CLASSIFIER, StoredModel

SAMPLES: Final = "samples.png"
REPORT: Final = "report-releasable.json"


@dataclass(frozen=True)
class Release:
    """A released model as anybody may see it; its data set is not named.

    Attributes:
        job_id: The job that made it; None for an imported one.
        title: Name that its owner gave it for others, or one that is made of public values.
        guarantee: The sentence of what it promises; empty if no account here covers it.
        files: Names of the files that anybody may get.
        images: Number of images that were packed, or may well be drawn.
    """

    id: str
    kind: str
    job_id: str | None
    title: str
    license: str
    created_at: datetime
    schema: Schema
    summary: ReleaseSummary
    guarantee: str
    files: frozenset[str]
    images: int


def read_release(database: Database, artifacts: ArtifactStore, model: StoredModel) -> Release:
    """Return a model as anybody may see it."""
    return read_releases(database, artifacts, [model])[0]


def read_releases(database: Database, artifacts: ArtifactStore, models: Sequence[StoredModel]) -> list[Release]:
    """Return models as anybody may see them, by as many statements for many as for one."""
    made = jobs.get_all(database, [model.job_id for model in models if model.job_id is not None])
    schemas = datasets.get_all(database, {job.dataset_id for job in made.values()})
    files: dict[str, dict[str, Artifact]] = {job_id: {} for job_id in made}
    for file in artifacts.list_releasable(made):
        files[file.job_id][file.name] = file
    return [
        _read_imported(model)
        if model.job_id is None
        else _read_made(model, made[model.job_id], schemas[made[model.job_id].dataset_id].schema, files[model.job_id])
        for model in models
    ]


def _read_imported(model: StoredModel) -> Release:
    schema = Schema.model_validate((model.card or {})["schema"])
    return _build(model, schema, ReleaseSummary(), "", frozenset(), USUAL_IMAGES)


def _read_made(model: StoredModel, job: Job, schema: Schema, public: dict[str, Artifact]) -> Release:
    price = PlanSummary.model_validate(job.price)
    return _build(
        model,
        schema,
        _summarize(public.get(REPORT)),
        JobPrivacy.from_job(job, price.about(schema)).guarantee,
        frozenset(public),
        int(job.spec["synthetic_images"]),
    )


def _build(
    model: StoredModel, schema: Schema, summary: ReleaseSummary, guarantee: str, files: frozenset[str], images: int
) -> Release:
    return Release(
        id=model.id,
        kind=model.kind,
        job_id=model.job_id,
        title=model.title or _name(model.kind, schema),
        license=model.license,
        created_at=model.created_at,
        schema=schema,
        summary=summary,
        guarantee=guarantee,
        files=files,
        images=images,
    )


def _name(kind: str, schema: Schema) -> str:
    what = "Classifier" if kind == CLASSIFIER else "Images"
    number = schema.num_classes
    return f"{what} of {number:,} class{'' if number == 1 else 'es'}, {schema.width} × {schema.height} pixels"


def _summarize(report: Artifact | None) -> ReleaseSummary:
    return ReleaseSummary() if report is None else summarize_release(json.loads(report.path.read_bytes()))
