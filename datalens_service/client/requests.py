"""Parts of requests: types, limits of time and size, and how values are written."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel

from datalens_service.base.audience import ReportAudience as ReportAudience

Spec = BaseModel | Mapping[str, Any]
AuditBody = BaseModel | Mapping[str, Any]
Format = Literal["npz", "parquet", "imagefolder", "webdataset"]
ClassifierFormat = Literal["safetensors", "onnx", "archive"]
Audience = ReportAudience
"""Its name in versions 1.0 and 1.1."""
ReleaseMode = Literal["at_once", "after_approval"]

CHUNK_SIZE: Final = 8 * 2**20
"""Bytes per chunk of a resumable upload; a shorter file is sent in one request."""

# Reading, converting and fingerprinting a large upload takes the service longer than any other request.
UPLOAD_SECONDS: Final = 600.0
# The service may have to draw the images first.
DOWNLOAD_SECONDS: Final = 1900.0
PAGE_SIZE: Final = 100
TUS: Final = {"Tus-Resumable": "1.0.0"}


def encode_form(fields: Mapping[str, object]) -> dict[str, str]:
    """Query parameters or form fields; None and False leave a field out, tuples are joined by commas."""
    return {name: _encode_text(value) for name, value in drop_unset(fields).items()}


def encode_query(fields: Mapping[str, object]) -> dict[str, str | list[str]]:
    """Query parameters; None and False leave one out, and a list becomes a parameter that is repeated."""
    return {
        name: [str(one) for one in value] if isinstance(value, list) else _encode_text(value)
        for name, value in drop_unset(fields).items()
    }


def drop_unset(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that are neither None nor False: a service that does not know a member refuses it."""
    return {name: value for name, value in fields.items() if value is not None and value is not False}


def encode_labels(name: str | None, tags: Sequence[str] | None, notes: str | None) -> dict[str, Any]:
    """Changes of labels as the body of a request; what is None stays as it is."""
    return {"json": drop_unset({"name": name, "tags": None if tags is None else list(tags), "notes": notes})}


def encode_spec(spec: Spec | AuditBody) -> dict[str, Any]:
    """A request as JSON."""
    return spec.model_dump(mode="json") if isinstance(spec, BaseModel) else dict(spec)


def _encode_text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
