"""Resumable uploads: tus 1.0 with creation, checksum, termination and expiration."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from datalens_service.api.deps import ObjectId, Services, ServicesDep, caller
from datalens_service.api.http.strictness import DIGITS
from datalens_service.api.http.threads import ThreadedRoute, run_in_thread
from datalens_service.api.openapi.document import ok, problems
from datalens_service.api.schemas.datasets import UploadRead
from datalens_service.api.uploads import tus
from datalens_service.api.uploads.receiver import build_metadata, label_in, read_pieces
from datalens_service.base.errors import InvalidDataset, Unauthorized, UploadOffsetMismatch
from datalens_service.data.intake.readers import EMPTY
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.datasets import upload_room, upload_sessions
from datalens_service.store.datasets.upload_sessions import PartialUpload

router = APIRouter(
    route_class=ThreadedRoute,
    prefix=tus.PATH,
    tags=["uploads"],
    responses=problems("unauthorized", "store-unavailable", "internal-error"),
)

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {tus.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}, "example": "bytes"}},
    }
}
_PROGRESS: Final = ("Upload-Offset", "Upload-Expires", "Tus-Resumable")

Version = Annotated[str | None, Header(alias="Tus-Resumable", description="1.0.0")]
Caller = Annotated[ApiKey, Depends(caller)]


@router.options(
    "",
    summary="Ask what the service offers for uploads",
    responses=ok(204, "The headers name version, extensions, largest length and checksums."),
)
def get_upload_options(services: ServicesDep, _caller: Caller) -> Response:
    """A tus client asks this first."""
    headers = {
        "Tus-Extension": tus.EXTENSIONS,
        "Tus-Max-Size": str(services.settings.max_upload_bytes),
        "Tus-Checksum-Algorithm": ",".join(tus.ALGORITHMS),
    }
    return Response(status_code=204, headers=headers)


@router.post(
    "",
    summary="Announce a file that will come in chunks",
    responses=ok(
        201,
        "The upload, still empty.",
        "invalid-input",
        "dataset-invalid",
        "payload-too-large",
        "upload-protocol",
        "insufficient-storage",
        "quota-exceeded",
        headers=("Location", *_PROGRESS),
    ),
)
def create_upload(
    services: ServicesDep,
    caller: Caller,
    response: Response,
    length: Annotated[
        int, Header(alias="Upload-Length", ge=0, lt=2**63, description="Bytes of the whole file."), DIGITS
    ],
    metadata: Annotated[
        str | None,
        Header(
            alias="Upload-Metadata",
            max_length=4096,
            description="`filename`, a blank, and Base64 of it: the name of a dataset that is given no other.",
        ),
    ] = None,
    version: Version = None,
) -> UploadRead:
    """Only the file name is read of `Upload-Metadata`."""
    tus.check_version(version)
    if length == 0:
        # A person who chose the wrong file reads why, and not which number a header may have.
        raise InvalidDataset(EMPTY)
    if length > services.settings.max_upload_bytes:
        raise HTTPException(413)
    label = label_in(metadata)
    with upload_room.reserve(services.database, services.settings.data_dir, length):
        upload_room.check_quota(services.database, services.settings.data_dir, caller.tenant_id, length)
        upload = upload_sessions.create(services.database, caller.id, length, _lifetime(services), label)
    response.headers.update({**tus.build_headers(upload), "Location": f"{tus.PATH}/{upload.id}"})
    return UploadRead.from_upload(upload)


@router.head(
    "/{upload_id}",
    summary="Ask how much of an upload has arrived",
    response_class=Response,
    responses=ok(200, "The headers say it.", "upload-protocol", headers=_PROGRESS),
)
def get_upload_offset(upload_id: ObjectId, services: ServicesDep, _caller: Caller, version: Version = None) -> Response:
    """A client asks this after an interruption."""
    tus.check_version(version)
    upload = upload_sessions.get(services.database, upload_id)
    return Response(headers={**tus.build_headers(upload), **build_metadata(upload.name)})


@router.get("/{upload_id}", summary="Read an upload", responses=ok(200, "The upload."))
def get_upload(upload_id: ObjectId, services: ServicesDep, _caller: Caller) -> UploadRead:
    """The same as JSON."""
    return UploadRead.from_upload(upload_sessions.get(services.database, upload_id))


@router.patch(
    "/{upload_id}",
    summary="Send the next chunk of a file",
    openapi_extra=_BODY,
    responses=ok(
        204,
        "The chunk is on the disk.",
        "invalid-input",
        "malformed-request",
        "request-timeout",
        "upload-offset-mismatch",
        "upload-locked",
        "checksum-mismatch",
        "upload-protocol",
        "payload-too-large",
        "unsupported-media-type",
        "insufficient-storage",
        headers=_PROGRESS,
    ),
)
async def append_to_upload(
    upload_id: ObjectId,
    request: Request,
    services: ServicesDep,
    _caller: Caller,
    offset: Annotated[
        int, Header(alias="Upload-Offset", ge=0, lt=2**63, description="Where the chunk begins."), DIGITS
    ],
    checksum: Annotated[
        str | None, Header(alias="Upload-Checksum", description="`sha256` or `sha1`, a blank, Base64 of the digest.")
    ] = None,
    version: Version = None,
) -> Response:
    """Any length. With a checksum, all of the chunk counts or nothing; without, whatever arrived."""
    tus.check_version(version)
    if request.headers.get("content-type", "") != tus.MEDIA_TYPE:
        raise HTTPException(415)
    expected = tus.parse_checksum(checksum)
    known = await run_in_thread(upload_sessions.get, services.database, upload_id)
    with tus.locked_file(_folder(services) / known.id) as file:
        upload = await run_in_thread(upload_sessions.get, services.database, upload_id)
        if offset != upload.received:
            raise UploadOffsetMismatch(f"The next chunk begins at {upload.received}, not at {offset}.")
        chunk = tus.Chunk(file, upload, expected)
        received = await _received(request, services, upload, chunk)
    return Response(status_code=204, headers=tus.build_headers(received))


@router.delete(
    "/{upload_id}",
    summary="Give an upload up",
    responses=ok(204, "What had arrived is gone.", "upload-locked", "upload-protocol"),
)
def delete_upload(upload_id: ObjectId, services: ServicesDep, _caller: Caller, version: Version = None) -> Response:
    """Datasets that were made from it stay."""
    tus.check_version(version)
    path = _folder(services) / upload_sessions.get(services.database, upload_id).id
    with tus.locked_file(path):
        upload_sessions.remove(services.database, upload_id)
        path.unlink(missing_ok=True)
    return Response(status_code=204)


async def _received(request: Request, services: Services, upload: PartialUpload, chunk: tus.Chunk) -> PartialUpload:
    """Take the body, and note how far the upload is then."""
    try:
        async for data in read_pieces(request):
            await anyio.to_thread.run_sync(chunk.write, data)
        end = await anyio.to_thread.run_sync(chunk.finish)
    except (ClientDisconnect, Unauthorized):
        end = await anyio.to_thread.run_sync(chunk.interrupt)
        await anyio.to_thread.run_sync(_note, services, upload.id, end)
        raise
    except asyncio.CancelledError:
        # The service ends, and waits for no more than this.
        _note(services, upload.id, chunk.interrupt())
        raise
    except BaseException:
        chunk.discard()
        raise
    return await anyio.to_thread.run_sync(_note, services, upload.id, end)


def _note(services: Services, upload_id: str, end: int) -> PartialUpload:
    return upload_sessions.advance(services.database, upload_id, end, _lifetime(services))


def _folder(services: Services) -> Path:
    return upload_sessions.partial_files(services.settings.data_dir)


def _lifetime(services: Services) -> timedelta:
    return timedelta(hours=services.settings.upload_hours)
