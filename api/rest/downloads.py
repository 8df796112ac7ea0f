"""Serves the files that a job made: report, proof, synthetic images, classifier."""

from enum import StrEnum
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from datalens_service.api.deps import Caller, Services, ServicesDep
from datalens_service.api.http.file_responses import file_response
from datalens_service.api.http.threads import ThreadedRoute
from datalens_service.api.openapi.document import file_content, problems
from datalens_service.api.released_jobs import (
    IMAGES,
    Drawing,
    Labelling,
    LicenceId,
    Released,
    SelectionDep,
    images_file,
    stored_file,
)
from datalens_service.api.security.permissions import check_may_see_private
from datalens_service.base.errors import NotFound
from datalens_service.proof.job_proof import PROOF_FILE
from datalens_service.report import document
from datalens_service.services.synthetic_files import GENERATOR, BundleRequest
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs.jobs import Job

router = APIRouter(
    route_class=ThreadedRoute,
    prefix="/v1/jobs/{job_id}",
    tags=["downloads"],
    default_response_class=Response,
    responses=problems("not-found", "state-conflict", "range-not-satisfiable"),
)


class ReportCopy(StrEnum):
    """The copies of a report: the one for its owner, and the one for everybody else."""

    OWNER = "owner"
    RELEASABLE = "releasable"


class ReportFormat(StrEnum):
    """Format of a report."""

    JSON = "json"
    HTML = "html"


_REPORT_NAMES: Final = {ReportCopy.OWNER: "report", ReportCopy.RELEASABLE: "report-releasable"}


@router.get(
    "/report",
    summary="Read the report of a job",
    responses={**file_content("The report.", "application/json", "text/html"), **problems("report-incomplete")},
)
def get_job_report(
    job: Released,
    request: Request,
    services: ServicesDep,
    key: Caller,
    audience: Annotated[
        ReportCopy,
        Query(
            description="- `owner`: everything, including numbers the guarantee does not cover; do not pass it on"
            "\n- `releasable`: only what may be published"
        ),
    ] = ReportCopy.OWNER,
    format: Annotated[
        ReportFormat, Query(description="- `json`: for programs\n- `html`: for people")
    ] = ReportFormat.JSON,
) -> Response:
    """Each number says whether the guarantee covers it, it is public, or it is for the owner alone.

    While the evaluation goes on, the report states only what the job cost.

    A report that lacks a required field is not handed out, in neither format; `docs/privacy-report.schema.json` has
    them all.
    """
    if audience is ReportCopy.OWNER:
        check_may_see_private(key)
    _check_complete(services, job, _REPORT_NAMES[audience])
    name = f"{_REPORT_NAMES[audience]}.{format}"
    return stored_file(request, services, job, name, inline=True, private=audience is ReportCopy.OWNER)


@router.get(
    "/bundle",
    summary="Download the proof of what a job cost",
    responses=file_content("What `datalens verify` reads.", "application/json"),
)
def get_job_bundle(job: Released, request: Request, services: ServicesDep) -> Response:
    """Card, mechanisms and the charges of this job; from it anybody recomputes ε. Free to publish.

    The journal of the whole account is for the owner: `account-proof.json` among the files of the job.
    """
    return stored_file(request, services, job, PROOF_FILE)


def _check_complete(services: Services, job: Job, name: str) -> None:
    """Refuse a report whose JSON lacks a field; the page is made from the same view.

    Raises:
        ReportIncomplete: It does, or was changed after it was written.
    """
    try:
        document.check(services.artifacts.get(job.id, f"{name}.json").path.read_bytes())
    except FileNotFoundError:
        raise NotFound("The file was removed.") from None


@router.get(
    "/samples.png",
    summary="See samples of every class",
    responses=file_content("A grid, one class per row.", "image/png"),
)
def get_job_samples(job: Drawing, request: Request, services: ServicesDep) -> Response:
    """Synthetic images, free to publish, or public ones that were labelled, under the licence that they have."""
    return stored_file(request, services, job, "samples.png", inline=True)


@router.get(
    "/generator",
    summary="Download the generator",
    responses=file_content("The generator as safetensors.", "application/octet-stream"),
)
def get_job_generator(job: Drawing, request: Request, services: ServicesDep) -> Response:
    """Released numbers only; drawing from it is free and repeatable by seed."""
    return stored_file(request, services, job, GENERATOR)


@router.get(
    "/synthetic",
    summary="Download synthetic images",
    responses={**IMAGES, **problems("worker-unavailable", "store-unavailable")},
)
def get_job_synthetic(job: Drawing, request: Request, services: ServicesDep, selection: SelectionDep) -> Response:
    """Drawing more, or other classes, is free: it reads the generator, never the records."""
    schema = datasets.get(services.database, job.dataset_id).schema
    made = services.synthetic.get(job, schema, selection)
    return images_file(request, made, job.id, selection.format)


@router.get(
    "/dataset",
    summary="Download the synthetic dataset, ready to be published",
    responses={
        **file_content("A zip: images, card, licence, checksums, Croissant, proof of privacy.", "application/zip"),
        **problems("worker-unavailable", "store-unavailable"),
    },
)
def get_job_dataset(
    job: Drawing,
    request: Request,
    services: ServicesDep,
    selection: SelectionDep,
    title: Annotated[str | None, Query(max_length=200, description="Public name of the dataset.")] = None,
    license: LicenceId = "other",
) -> Response:
    """Unpacked, Hugging Face `datasets` loads the folder; nothing in it is private."""
    schema = datasets.get(services.database, job.dataset_id).schema
    made = services.synthetic.bundle(job, schema, BundleRequest(selection, title, license))
    name = f"{job.id}-{selection.format}.zip"
    return file_response(request, made.path, made.sha256, media_type="application/zip", name=name)


@router.get(
    "/classifier",
    summary="Download the classifier",
    responses=file_content("The classifier as safetensors.", "application/octet-stream"),
)
def get_job_classifier(job: Labelling, request: Request, services: ServicesDep) -> Response:
    """Released numbers only; predicting with it is free."""
    return stored_file(request, services, job, "classifier.safetensors")


@router.get(
    "/classifier.onnx",
    summary="Download the classifier for other programs",
    responses=file_content("The classifier as ONNX, bytes of pixels in.", "application/octet-stream"),
)
def get_job_classifier_onnx(job: Labelling, request: Request, services: ServicesDep) -> Response:
    """The same numbers; onnxruntime and others run it, without this product."""
    return stored_file(request, services, job, "classifier.onnx")


@router.get(
    "/classifier.zip",
    summary="Download the classifier, ready to be published",
    responses=file_content("A zip: both forms, card, licence, checksums, report, proof of privacy.", "application/zip"),
)
def get_job_classifier_archive(
    job: Labelling, request: Request, services: ServicesDep, license: LicenceId = "other"
) -> Response:
    """Nothing in it is private; `datalens verify` checks every file of it."""
    made = services.synthetic.model_archive(job, license)
    return file_response(request, made.path, made.sha256, media_type="application/zip", name=f"{job.id}-classifier.zip")
