"""The classifier of a job, as safetensors, as ONNX, or as an archive."""

from __future__ import annotations

from fastapi import Request, Response

from api.deps import ServicesDep
from api.http.file_responses import file_response
from api.openapi.document import file_content
from api.released_jobs import Labelling, LicenceId, download_router, stored_file

router = download_router()


@router.get(
    "/classifier",
    operation_id="getJobClassifier",
    summary="Download the classifier",
    responses=file_content("The classifier as safetensors.", "application/octet-stream"),
)
def get_classifier(job: Labelling, request: Request, services: ServicesDep) -> Response:
    """Released numbers only; predicting with it is free."""
    return stored_file(request, services, job, "classifier.safetensors")


@router.get(
    "/classifier.onnx",
    operation_id="getJobClassifierOnnx",
    summary="Download the classifier for other programs",
    responses=file_content("The classifier as ONNX, bytes of pixels in.", "application/octet-stream"),
)
def get_classifier_onnx(job: Labelling, request: Request, services: ServicesDep) -> Response:
    """The same numbers; onnxruntime and others run it, without this product."""
    return stored_file(request, services, job, "classifier.onnx")


@router.get(
    "/classifier.zip",
    operation_id="getJobClassifierArchive",
    summary="Download the classifier, ready to be published",
    responses=file_content("A zip: both forms, card, licence, checksums, report, proof of privacy.", "application/zip"),
)
def get_classifier_archive(
    job: Labelling, request: Request, services: ServicesDep, license: LicenceId = "other"
) -> Response:
    """Nothing in it is private; `datalens verify` checks every file of it."""
    made = services.synthetic.model_archive(job, license)
    return file_response(request, made.path, made.sha256, media_type="application/zip", name=f"{job.id}-classifier.zip")
