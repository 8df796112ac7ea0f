"""Generators: draw more images, export and import."""

import json
from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from datalens_service.api.deps import After, Caller, Limit, ObjectId, ServicesDep
from datalens_service.api.http.file_responses import file_response
from datalens_service.api.http.threads import ThreadedRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import file_content, form_body, ok, problems
from datalens_service.api.released_jobs import IMAGES, SelectionDep, images_file
from datalens_service.api.schemas.common import Page
from datalens_service.api.schemas.releases import GeneratorForm, GeneratorRead
from datalens_service.api.uploads.receiver import FILE_FIELD, GeneratorUploadDep
from datalens_service.base.errors import StateConflict
from datalens_service.data.dataset import Schema
from datalens_service.services import generator_import, removed_files
from datalens_service.services.synthetic_files import CARD, GENERATOR, USUAL_IMAGES
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, released_models

router = APIRouter(route_class=ThreadedRoute, prefix="/v1/generators", tags=["generators"])
_FORM: Final[dict[str, Any]] = form_body(
    GeneratorForm, FILE_FIELD, "A generator as `GET /v1/generators/{id}/file` gives it.", examples.GENERATOR_FORM
)


@router.get("", summary="List generators, newest first", responses=ok(200, "A page of the list."))
def list_generators(services: ServicesDep, key: Caller, limit: Limit = 20, after: After = None) -> Page[GeneratorRead]:
    """The list has generators that jobs made and those that were imported; cards are left out."""
    page = released_models.list_models(
        services.database, key.tenant_id, kind=released_models.GENERATOR, limit=limit, cursor=after
    )
    return Page.build(page, (GeneratorRead.from_model(generator, None) for generator in page.items))


@router.post(
    "",
    summary="Bring a generator along",
    response_model=GeneratorRead,
    openapi_extra=_FORM,
    responses=ok(
        201,
        "It can be drawn from.",
        "payload-too-large",
        "unsupported-media-type",
        "worker-unavailable",
        "insufficient-storage",
        headers=("Location",),
    ),
)
def import_generator(
    upload: GeneratorUploadDep, services: ServicesDep, key: Caller, response: Response
) -> GeneratorRead:
    """Numbers are read from it and no code is run. No account here covers it, and everything drawn from it says so."""
    made = generator_import.register(
        services.database, services.settings.data_dir, upload.path, key.tenant_id, upload.form.name
    )
    response.headers["Location"] = f"/v1/generators/{made.id}"
    return GeneratorRead.from_model(made, made.card)


@router.get("/{generator_id}", summary="Read a generator and its card", responses=ok(200, "The generator."))
def get_generator(generator_id: ObjectId, services: ServicesDep) -> GeneratorRead:
    """The card of one that a job made is that of the job: what it cost, and by which mechanisms."""
    generator = released_models.get(services.database, generator_id)
    if generator.job_id is None:
        return GeneratorRead.from_model(generator, generator.card)
    card = services.artifacts.releasable(generator.job_id, CARD).path.read_text()
    return GeneratorRead.from_model(generator, json.loads(card))


@router.get(
    "/{generator_id}/file",
    summary="Take a generator along",
    responses={**file_content("safetensors.", "application/octet-stream"), **problems("range-not-satisfiable")},
    response_class=Response,
)
def get_generator_file(generator_id: ObjectId, request: Request, services: ServicesDep) -> Response:
    """Numbers and public settings; `POST /v1/generators` takes it in again, here or elsewhere."""
    generator = released_models.get(services.database, generator_id)
    if generator.job_id is None:
        path, sha256 = generator_import.locate_file(services.settings.data_dir, generator.id), generator.sha256 or ""
    else:
        artifact = services.artifacts.releasable(generator.job_id, GENERATOR)
        path, sha256 = artifact.path, artifact.sha256
    name = f"{generator.id}.safetensors"
    return file_response(request, path, sha256, media_type="application/octet-stream", name=name)


@router.get(
    "/{generator_id}/samples",
    summary="Draw synthetic images",
    responses={**IMAGES, **problems("range-not-satisfiable", "worker-unavailable")},
    response_class=Response,
)
def create_generator_samples(
    generator_id: ObjectId, request: Request, services: ServicesDep, selection: SelectionDep
) -> Response:
    """Costs no ε: it reads the generator, never the records. If no number is named, 1,000 are drawn."""
    generator = released_models.get(services.database, generator_id)
    if generator.job_id is None:
        schema = Schema.model_validate((generator.card or {})["schema"])
        file, card = (
            generator_import.locate_file(services.settings.data_dir, generator.id),
            generator_import.locate_card(services.settings.data_dir, generator.id),
        )
        made = services.synthetic.drawn(generator.id, file, card, schema, selection)
    else:
        job = jobs.get(services.database, generator.job_id)
        if selection.synthetic_images is None and selection.per_class is None:
            selection = replace(selection, synthetic_images=USUAL_IMAGES)
        made = services.synthetic.get(job, datasets.get(services.database, job.dataset_id).schema, selection)
    return images_file(request, made, generator.id, selection.format)


@router.delete(
    "/{generator_id}", summary="Forget an imported generator", responses=ok(204, "Its file is gone.", "state-conflict")
)
def delete_generator(generator_id: ObjectId, services: ServicesDep) -> None:
    """A generator that a job made is a release: it stays, as its budget stays spent."""
    if not released_models.delete_imported(services.database, generator_id):
        raise StateConflict("A job made this generator; what was released stays.")
    removed_files.remove_noted(services.database, services.artifacts, services.settings, {generator_id})
