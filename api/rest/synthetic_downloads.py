"""Generator, samples and synthetic images of a job, alone or as an archive."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from api.deps import ServicesDep
from api.http.file_responses import file_response
from api.http.strictness import DIGITS
from api.openapi.document import file_content, problems
from api.released_jobs import Drawing, FormatName, LicenceId, download_router, stored_file
from datalens_service.data.export import WRITERS
from datalens_service.services.synthetic_files import GENERATOR, MAXIMUM_IMAGES, BundleRequest
from datalens_service.store.datasets import datasets

router = download_router()


@router.get(
    "/samples.png",
    operation_id="getJobSamples",
    summary="See samples of every class",
    responses=file_content("A grid, one class per row.", "image/png"),
)
def get_samples(job: Drawing, request: Request, services: ServicesDep) -> Response:
    """Synthetic images; free to publish."""
    return stored_file(request, services, job, "samples.png", inline=True)


@router.get(
    "/generator",
    operation_id="getJobGenerator",
    summary="Download the generator",
    responses=file_content("The generator as safetensors.", "application/octet-stream"),
)
def get_generator(job: Drawing, request: Request, services: ServicesDep) -> Response:
    """Released numbers only; drawing from it is free and repeatable by seed."""
    return stored_file(request, services, job, GENERATOR)


@router.get(
    "/synthetic",
    operation_id="getJobSynthetic",
    summary="Download synthetic images",
    responses={
        **file_content(
            "A file that says it is synthetic and carries the card.",
            *dict.fromkeys(writer.media_type for writer in WRITERS.values()),
        ),
        **problems("worker-unavailable", "store-unavailable"),
    },
)
def get_synthetic(
    job: Drawing,
    request: Request,
    services: ServicesDep,
    format: FormatName = "parquet",
    n: Annotated[
        int | None, Query(ge=1, le=MAXIMUM_IMAGES, description="Images; left out, what was packed."), DIGITS
    ] = None,
    seed: Annotated[
        int | None, Query(ge=0, lt=2**63, description="Draws anew; left out, from what was packed."), DIGITS
    ] = None,
) -> Response:
    """Drawing more is free: it reads the generator, never the records."""
    schema = datasets.get(services.database, job.dataset_id).schema
    made = services.synthetic.get(job, schema, format, n, seed)
    writer = WRITERS[format]
    name = f"{job.id}-synthetic.{writer.suffix}"
    return file_response(request, made.path, made.sha256, media_type=writer.media_type, name=name)


@router.get(
    "/dataset",
    operation_id="getJobDataset",
    summary="Download the synthetic dataset, ready to be published",
    responses={
        **file_content("A zip: images, card, licence, checksums, Croissant, proof of privacy.", "application/zip"),
        **problems("worker-unavailable", "store-unavailable"),
    },
)
def get_dataset(
    job: Drawing,
    request: Request,
    services: ServicesDep,
    format: FormatName = "parquet",
    n: Annotated[
        int | None, Query(ge=1, le=MAXIMUM_IMAGES, description="Images; left out, what was packed."), DIGITS
    ] = None,
    seed: Annotated[
        int | None, Query(ge=0, lt=2**63, description="Draws anew; left out, from what was packed."), DIGITS
    ] = None,
    title: Annotated[str | None, Query(max_length=200, description="Public name of the dataset.")] = None,
    license: LicenceId = "other",
) -> Response:
    """Unpacked, Hugging Face `datasets` loads the folder; nothing in it is private."""
    schema = datasets.get(services.database, job.dataset_id).schema
    bundle_request = BundleRequest(format, n, seed, title, license)
    made = services.synthetic.bundle(job, schema, bundle_request)
    name = f"{job.id}-{format}.zip"
    return file_response(request, made.path, made.sha256, media_type="application/zip", name=name)
