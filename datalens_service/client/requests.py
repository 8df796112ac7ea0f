"""Every request of the API as a value: what it sends and how its response is parsed. Shared by both clients."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Final, Generic, Literal, TypeVar
from uuid import uuid4

import httpx2
from pydantic import BaseModel

from datalens_service.client.models import (
    AuditInfo,
    ClassifierInfo,
    DatasetInfo,
    FileInfo,
    FileList,
    IndividualEpsilon,
    Job,
    PlanInfo,
    PredictionsInfo,
    Receipt,
    UploadedDataset,
    UploadInfo,
    ValidationInfo,
)
from datalens_service.client.responses import parse_model, parse_object

Parsed = TypeVar("Parsed")
Spec = BaseModel | Mapping[str, Any]
AuditBody = BaseModel | Mapping[str, Any]
Format = Literal["npz", "parquet", "imagefolder", "webdataset"]
ClassifierFormat = Literal["safetensors", "onnx", "archive"]
Audience = Literal["owner", "releasable"]

CHUNK_SIZE: Final = 8 * 2**20
"""Bytes per chunk of a resumable upload; a shorter file is sent in one request."""

# Reading, converting and fingerprinting a large upload takes the service longer than any other request.
UPLOAD_SECONDS: Final = 600.0
# The service may have to draw the images first.
DOWNLOAD_SECONDS: Final = 1900.0
PAGE_SIZE: Final = 100
_TUS: Final = {"Tus-Resumable": "1.0.0"}


@dataclass(frozen=True)
class Request(Generic[Parsed]):
    """One request and how to parse its response.

    Attributes:
        method: HTTP method.
        path: Path on the service.
        parse: Turns a successful response into the result.
        options: Keyword arguments of the HTTP client's `request`.
    """

    method: str
    path: str
    parse: Callable[[httpx2.Response], Parsed]
    options: dict[str, Any] = field(default_factory=dict)


def upload_dataset(file: BinaryIO, file_name: str, declaration: Mapping[str, object]) -> Request[UploadedDataset]:
    """Send a short file and its declaration as one form."""
    form = {"data": encode_form(declaration), "files": {"file": (file_name, file)}, "timeout": UPLOAD_SECONDS}
    return Request("POST", "/v1/datasets", partial(parse_model, UploadedDataset), form)


def create_dataset(upload_id: str, declaration: Mapping[str, object]) -> Request[UploadedDataset]:
    """Make a dataset from a finished upload."""
    body = {"upload_id": upload_id, **drop_unset(declaration)}
    return Request("POST", "/v1/datasets", partial(parse_model, UploadedDataset), {"json": body})


def create_encoder(file: BinaryIO) -> Request[dict[str, Any]]:
    """Send an ONNX file."""
    form = {"files": {"file": ("encoder.onnx", file)}, "timeout": UPLOAD_SECONDS}
    return Request("POST", "/v1/encoders", parse_object, form)


def get_dataset(dataset_id: str) -> Request[DatasetInfo]:
    """Read one dataset."""
    return Request("GET", f"/v1/datasets/{dataset_id}", partial(parse_model, DatasetInfo))


def get_validation(dataset_id: str) -> Request[ValidationInfo]:
    """Read the validation report of an upload."""
    return Request("GET", f"/v1/datasets/{dataset_id}/validation", partial(parse_model, ValidationInfo))


def confirm_dataset(
    dataset_id: str, epsilon: float | None, delta: float | None, shares_budget_with: str | None
) -> Request[UploadedDataset]:
    """Make the class names of an upload public and open its budget."""
    budget = {"epsilon": epsilon, "delta": delta, "shares_budget_with": shares_budget_with}
    body = drop_unset({"confirm_classes": True, **budget})
    options = {"json": body, "timeout": UPLOAD_SECONDS}
    return Request("POST", f"/v1/datasets/{dataset_id}:confirm", partial(parse_model, UploadedDataset), options)


def update_dataset(dataset_id: str, labels: Mapping[str, object]) -> Request[DatasetInfo]:
    """Rename, tag or annotate a dataset."""
    return Request(
        "PATCH", f"/v1/datasets/{dataset_id}", partial(parse_model, DatasetInfo), {"json": drop_unset(labels)}
    )


def delete_dataset(dataset_id: str) -> Request[Receipt]:
    """Delete the records."""
    return Request("DELETE", f"/v1/datasets/{dataset_id}", partial(parse_model, Receipt))


def create_upload(length: int, file_name: str) -> Request[UploadInfo]:
    """Start a resumable upload of `length` bytes."""
    encoded_name = base64.b64encode(file_name.encode(errors="replace")).decode()
    headers = {**_TUS, "Upload-Length": str(length), "Upload-Metadata": f"filename {encoded_name}"}
    return Request("POST", "/v1/uploads", partial(parse_model, UploadInfo), {"headers": headers})


def get_upload(upload_id: str) -> Request[UploadInfo]:
    """Read how many bytes of an upload are stored."""
    return Request("GET", f"/v1/uploads/{upload_id}", partial(parse_model, UploadInfo))


def send_chunk(upload_id: str, offset: int, chunk: bytes) -> Request[int]:
    """Append a chunk with its checksum; the result is the new offset."""
    digest = base64.b64encode(hashlib.sha256(chunk).digest()).decode()
    headers = {
        **_TUS,
        "Upload-Offset": str(offset),
        "Upload-Checksum": f"sha256 {digest}",
        "Content-Type": "application/offset+octet-stream",
    }
    options = {"content": chunk, "headers": headers, "timeout": UPLOAD_SECONDS}
    return Request("PATCH", f"/v1/uploads/{upload_id}", _parse_offset, options)


def create_plan(dataset_id: str, spec: Spec) -> Request[PlanInfo]:
    """Price a job."""
    body = {"dataset_id": dataset_id, "spec": _encode_spec(spec)}
    return Request("POST", "/v1/plans", partial(parse_model, PlanInfo), {"json": body})


def submit_job(dataset_id: str, spec: Spec, priority: int | None, idempotency_key: str | None) -> Request[Job]:
    """Submit a job."""
    body: dict[str, Any] = {"dataset_id": dataset_id, "spec": _encode_spec(spec)}
    if priority is not None:
        body["priority"] = priority
    headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
    return Request("POST", "/v1/jobs", partial(parse_model, Job), {"json": body, "headers": headers})


def get_job(job_id: str) -> Request[Job]:
    """Read one job."""
    return Request("GET", f"/v1/jobs/{job_id}", partial(parse_model, Job))


def update_job(job_id: str, labels: Mapping[str, object]) -> Request[Job]:
    """Name, tag or annotate a job."""
    return Request("PATCH", f"/v1/jobs/{job_id}", partial(parse_model, Job), {"json": drop_unset(labels)})


def control_job(job_id: str, verb: Literal["cancel", "pause", "resume"]) -> Request[Job]:
    """Cancel, pause or resume a job."""
    return Request("POST", f"/v1/jobs/{job_id}:{verb}", partial(parse_model, Job))


def submit_audit(request: AuditBody, idempotency_key: str | None) -> Request[AuditInfo]:
    """Submit an audit."""
    headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
    options = {"json": _encode_spec(request), "headers": headers}
    return Request("POST", "/v1/audits", partial(parse_model, AuditInfo), options)


def get_audit(audit_id: str) -> Request[AuditInfo]:
    """Read one audit."""
    return Request("GET", f"/v1/audits/{audit_id}", partial(parse_model, AuditInfo))


def cancel_audit(audit_id: str) -> Request[AuditInfo]:
    """Cancel an audit."""
    return Request("POST", f"/v1/audits/{audit_id}:cancel", partial(parse_model, AuditInfo))


def get_report(job_id: str, audience: Audience) -> Request[dict[str, Any]]:
    """Read the report of a job."""
    options = {"params": {"audience": audience, "format": "json"}}
    return Request("GET", f"/v1/jobs/{job_id}/report", parse_object, options)


def list_files(job_id: str) -> Request[tuple[FileInfo, ...]]:
    """List the files of a job."""
    return Request("GET", f"/v1/jobs/{job_id}/artifacts", lambda response: parse_model(FileList, response).items)


def get_classifier(classifier_id: str) -> Request[ClassifierInfo]:
    """Read one classifier."""
    return Request("GET", f"/v1/classifiers/{classifier_id}", partial(parse_model, ClassifierInfo))


def create_predictions(classifier_id: str, file: BinaryIO) -> Request[PredictionsInfo]:
    """Send images and read their predictions."""
    # The file's own name stays here: it may be private.
    form = {"files": {"file": ("upload", file)}, "timeout": UPLOAD_SECONDS}
    return Request("POST", f"/v1/classifiers/{classifier_id}/predictions", partial(parse_model, PredictionsInfo), form)


def create_individual_epsilon(job_id: str, file: BinaryIO, label: int) -> Request[IndividualEpsilon]:
    """Send one record and read what a job cost it."""
    form = {"files": {"file": ("upload", file)}, "data": {"label": str(label)}, "timeout": UPLOAD_SECONDS}
    return Request("POST", f"/v1/jobs/{job_id}/individual-epsilon", partial(parse_model, IndividualEpsilon), form)


def list_page(path: str, cursor: str | None) -> Request[dict[str, Any]]:
    """Read one page of a list; None reads the first."""
    params = {"limit": str(PAGE_SIZE), **({} if cursor is None else {"after": cursor})}
    return Request("GET", path, parse_object, {"params": params})


def encode_form(fields: Mapping[str, object]) -> dict[str, str]:
    """Query parameters or form fields; None leaves a field out, tuples are joined by commas."""
    return {name: _encode_text(value) for name, value in fields.items() if value is not None}


def drop_unset(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def add_report(dataset: DatasetInfo, report: ValidationInfo) -> UploadedDataset:
    """A dataset with what its validation report says."""
    return UploadedDataset.model_validate({**dict(dataset), "notices": report.notices, "review": report.review})


def _encode_text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _encode_spec(spec: Spec) -> dict[str, Any]:
    return spec.model_dump(mode="json") if isinstance(spec, BaseModel) else dict(spec)


def _parse_offset(response: httpx2.Response) -> int:
    return int(response.headers["Upload-Offset"])
