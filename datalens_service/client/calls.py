"""What each call sends and what its answer is, without sending it: shared by both clients."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import uuid4

import httpx2
from pydantic import BaseModel

from datalens_service.client.replies import (
    DatasetInfo,
    FileInfo,
    FileList,
    Job,
    PlanInfo,
    Receipt,
    UploadedDataset,
    UploadInfo,
    ValidationInfo,
)
from datalens_service.client.transport import json_object, parsed

Answer = TypeVar("Answer")
Spec = BaseModel | Mapping[str, Any]
Format = Literal["npz", "parquet", "imagefolder", "webdataset"]
Audience = Literal["owner", "releasable"]

PIECE_BYTES: Final = 8 * 2**20
"""Longest piece of a resumable upload; a shorter file goes in one request."""

# Reading, converting and fingerprinting a large upload takes the service longer than any other request.
UPLOAD_SECONDS: Final = 600.0
# The service may have to draw the images first.
DOWNLOAD_SECONDS: Final = 1900.0
PAGE: Final = 100
_TUS: Final = {"Tus-Resumable": "1.0.0"}


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request and how to read its answer.

    Attributes:
        method: HTTP method.
        address: Path on the service.
        read: What to make of a successful answer.
        options: Keyword arguments of the request.
    """

    method: str
    address: str
    read: Callable[[httpx2.Response], Answer]
    options: dict[str, Any] = field(default_factory=dict)


def create_dataset(upload_id: str, fields: Mapping[str, Any]) -> Call[UploadedDataset]:
    """A data set from a finished upload."""
    body = {"upload_id": upload_id, **fields}
    return Call("POST", "/v1/datasets", lambda reply: parsed(UploadedDataset, reply), {"json": body})


def dataset(dataset_id: str) -> Call[DatasetInfo]:
    """One data set."""
    return Call("GET", f"/v1/datasets/{dataset_id}", lambda reply: parsed(DatasetInfo, reply))


def validation(dataset_id: str) -> Call[ValidationInfo]:
    """What came of an upload."""
    return Call("GET", f"/v1/datasets/{dataset_id}/validation", lambda reply: parsed(ValidationInfo, reply))


def delete_dataset(dataset_id: str) -> Call[Receipt]:
    """Delete the records."""
    return Call("DELETE", f"/v1/datasets/{dataset_id}", lambda reply: parsed(Receipt, reply))


def begin_upload(length: int) -> Call[UploadInfo]:
    """Announce a file."""
    headers = {**_TUS, "Upload-Length": str(length)}
    return Call("POST", "/v1/uploads", lambda reply: parsed(UploadInfo, reply), {"headers": headers})


def upload_state(upload_id: str) -> Call[UploadInfo]:
    """How much of a file is there."""
    return Call("GET", f"/v1/uploads/{upload_id}", lambda reply: parsed(UploadInfo, reply))


def send_piece(upload_id: str, offset: int, piece: bytes) -> Call[int]:
    """The next piece of a file; the answer is how much is there then."""
    digest = base64.b64encode(hashlib.sha256(piece).digest()).decode()
    headers = {
        **_TUS,
        "Upload-Offset": str(offset),
        "Upload-Checksum": f"sha256 {digest}",
        "Content-Type": "application/offset+octet-stream",
    }
    options = {"content": piece, "headers": headers, "timeout": UPLOAD_SECONDS}
    return Call("PATCH", f"/v1/uploads/{upload_id}", lambda reply: int(reply.headers["Upload-Offset"]), options)


def plan(dataset_id: str, spec: Spec) -> Call[PlanInfo]:
    """What a job would cost."""
    body = {"dataset_id": dataset_id, "spec": _jsonable(spec)}
    return Call("POST", "/v1/plans", lambda reply: parsed(PlanInfo, reply), {"json": body})


def submit(dataset_id: str, spec: Spec, idempotency_key: str | None) -> Call[Job]:
    """A new job."""
    body = {"dataset_id": dataset_id, "spec": _jsonable(spec)}
    headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
    return Call("POST", "/v1/jobs", lambda reply: parsed(Job, reply), {"json": body, "headers": headers})


def job(job_id: str) -> Call[Job]:
    """One job."""
    return Call("GET", f"/v1/jobs/{job_id}", lambda reply: parsed(Job, reply))


def act(job_id: str, verb: Literal["cancel", "pause", "resume"]) -> Call[Job]:
    """Ask something of a job."""
    return Call("POST", f"/v1/jobs/{job_id}:{verb}", lambda reply: parsed(Job, reply))


def report(job_id: str, audience: Audience) -> Call[dict[str, Any]]:
    """The report of a job."""
    options = {"params": {"audience": audience, "format": "json"}}
    return Call("GET", f"/v1/jobs/{job_id}/report", json_object, options)


def files(job_id: str) -> Call[tuple[FileInfo, ...]]:
    """The files of a job."""
    return Call("GET", f"/v1/jobs/{job_id}/artifacts", lambda reply: parsed(FileList, reply).items)


def page(address: str, after: str | None) -> Call[dict[str, Any]]:
    """A portion of a list."""
    params = {"limit": str(PAGE), **({} if after is None else {"after": after})}
    return Call("GET", address, json_object, {"params": params})


def chosen(**given: object) -> dict[str, str]:
    """Query or form fields of what was named."""
    return {key: _text(value) for key, value in given.items() if value is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def declared(**given: object) -> dict[str, Any]:
    """The declaration of an upload as JSON."""
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in given.items() if value is not None
    }


def with_notices(dataset: DatasetInfo, report: ValidationInfo) -> UploadedDataset:
    """A data set with the notices of its report."""
    return UploadedDataset.model_validate({**dict(dataset), "notices": report.notices})


def _jsonable(spec: Spec) -> dict[str, Any]:
    return spec.model_dump(mode="json") if isinstance(spec, BaseModel) else dict(spec)
