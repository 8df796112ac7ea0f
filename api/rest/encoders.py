"""Encoders of one's own: public functions of an image, from ONNX files."""

from typing import Any, Final

from fastapi import APIRouter

from datalens_service.api.deps import ServicesDep
from datalens_service.api.http.threads import ThreadedRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import form_body, ok
from datalens_service.api.schemas.classifiers import EncoderForm
from datalens_service.api.uploads.receiver import FILE_FIELD, EncoderUploadDep
from datalens_service.models.encoders import OnnxEncoder
from datalens_service.services import encoders

router = APIRouter(route_class=ThreadedRoute, prefix="/v1/encoders", tags=["datasets"])
_FORM: Final[dict[str, Any]] = form_body(
    EncoderForm,
    FILE_FIELD,
    "An ONNX graph from (1, 3, height, width) floats, RGB from 0 to 1, to a vector.",
    examples.ENCODER_FORM,
)


@router.post(
    "",
    summary="Upload a public encoder",
    openapi_extra=_FORM,
    responses=ok(
        200,
        "The value for `encoder` of a method.",
        "payload-too-large",
        "unsupported-media-type",
        "worker-unavailable",
        "insufficient-storage",
    ),
)
def create_encoder(upload: EncoderUploadDep, services: ServicesDep) -> OnnxEncoder:
    """It is read and run in a confined process alone, one image at a time. The guarantee does not cover what it knows.

    The same file again changes nothing. Released classifiers hold the file.
    """
    return encoders.keep(services.artifacts, upload.path)
