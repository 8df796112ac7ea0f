"""Receiving an upload: the file goes to the disk of the data folder as it arrives and is gone after the request.

The key is checked before the first byte is read, and no more than a chunk is in memory. The name of the file is used
for the name of a data set alone.
"""

import base64
import binascii
import time
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Generic, TypeVar
from urllib.parse import unquote

import anyio.to_thread
from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from datalens_service.api.deps import Services, ServicesDep, caller
from datalens_service.api.http.strictness import as_request_errors, no_json, parsed, typed
from datalens_service.api.http.threads import run_in_thread
from datalens_service.api.schemas.classifiers import (
    EncoderForm,
    IndividualEpsilonForm,
    IndividualEpsilonRequest,
    PredictionForm,
    PredictionRequest,
)
from datalens_service.api.schemas.datasets import DatasetRequest
from datalens_service.api.schemas.releases import GeneratorForm
from datalens_service.api.uploads.multipart import FormReader
from datalens_service.base.errors import InvalidInput, StoreUnavailable, Unauthorized
from datalens_service.services.dataset_declaration import DatasetForm
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.datasets import upload_room
from datalens_service.store.disk import translated, unavailable

FILE_FIELD: Final = "file"
_STEP_BYTES: Final = 2**24
_ADMITTED_SECONDS: Final = 1.0
"""So long, a body comes in without a look whether its sender still may."""

_NOT_KEPT: Final = "The upload could not be kept; free the disk of the data folder."
Form = TypeVar("Form", bound=BaseModel)


@dataclass(frozen=True)
class ReceivedFile(Generic[Form]):
    """A file on the disk, for the time of one request."""

    path: Path
    label: str | None
    form: Form


def _build_receiver(form: type[Form], body: type[BaseModel] | None = None) -> Callable[..., AsyncIterator[Any]]:
    """Build the dependency that receives the file of a request, and removes it when the handler has ended.

    Args:
        body: Model of JSON that may be sent in its place; None takes files alone.
    """

    async def receive(
        request: Request, services: ServicesDep, _caller: Annotated[ApiKey, Depends(caller)]
    ) -> AsyncIterator[ReceivedFile[Form] | BaseModel]:
        """Receive the file or the JSON body of this request.

        Raises:
            HTTPException: 415, neither multipart/form-data nor JSON that is taken; 413, longer than the limit.
            RequestValidationError: Malformed, without exactly one file, or a field is unknown or not usable.
        """
        content_type = request.headers.get("content-type", "")
        if body is not None and content_type.partition(";")[0].strip() == "application/json":
            yield await _request(body, request)
            return
        tenant_id = _caller.tenant_id if form is DatasetForm else None
        room = _Room(services, request.headers.get("content-length", ""), tenant_id)
        file, path = await run_in_thread(room.open_file)
        try:
            with file:
                reader = FormReader(content_type, FILE_FIELD, file)
                await _receive(request, reader, room)
                yield ReceivedFile(path, clean_label(reader.file_name), _checked(form, typed(form, reader.fields)))
        finally:
            path.unlink(missing_ok=True)

    return receive


RecordUploadDep = Annotated[
    ReceivedFile[IndividualEpsilonForm] | IndividualEpsilonRequest,
    Depends(_build_receiver(IndividualEpsilonForm, IndividualEpsilonRequest), scope="function"),
]
ImagesUploadDep = Annotated[
    ReceivedFile[PredictionForm] | PredictionRequest,
    Depends(_build_receiver(PredictionForm, PredictionRequest), scope="function"),
]
GeneratorUploadDep = Annotated[ReceivedFile[GeneratorForm], Depends(_build_receiver(GeneratorForm), scope="function")]
EncoderUploadDep = Annotated[ReceivedFile[EncoderForm], Depends(_build_receiver(EncoderForm), scope="function")]
UploadDep = Annotated[
    ReceivedFile[DatasetForm] | DatasetRequest, Depends(_build_receiver(DatasetForm, DatasetRequest), scope="function")
]


class _Room:
    """Room on the disk for a request: the length that it declares; one that declares none takes it step by step.

    Args:
        declared: Its header Content-Length.
        tenant_id: The tenant whose quota the length counts against; None if the file is not kept.
    """

    def __init__(self, services: Services, declared: str, tenant_id: str | None) -> None:
        self._tenant_id = tenant_id
        self._database, self._data_dir = services.database, services.settings.data_dir
        self._most = services.settings.max_upload_bytes
        self._length = int(declared) if declared.isdecimal() else None
        self._left = self._length or 0

    def open_file(self) -> tuple[BinaryIO, Path]:
        """Open a file for what comes, which reserves its length.

        Raises:
            HTTPException: 413, longer than the limit.
            InsufficientStorage: The disk has no room for it.
            QuotaExceeded: The tenant may not have it.
            StoreUnavailable: It cannot be written.
        """
        length = self._length or 0
        if length > self._most:
            raise HTTPException(413)
        with translated(_NOT_KEPT), upload_room.reserve(self._database, self._data_dir, length):
            if self._tenant_id is not None:
                upload_room.check_quota(self._database, self._data_dir, self._tenant_id, length)
            return upload_room.open_incoming(self._data_dir, length)

    def take(self, count: int) -> None:
        """Take room for the next bytes.

        Raises:
            InsufficientStorage: The disk has no more.
        """
        if count > self._left:
            step = max(count, _STEP_BYTES)
            with upload_room.reserve(self._database, self._data_dir, step):
                self._left += step
        self._left -= count


async def read_pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield the pieces of a body for as long as the key or session that sends it works.

    Raises:
        Unauthorized: It was revoked, has expired, or was signed out.
    """
    asked = time.monotonic()
    async for piece in request.stream():
        if time.monotonic() - asked >= _ADMITTED_SECONDS:
            await anyio.to_thread.run_sync(_check_admitted, request)
            asked = time.monotonic()
        yield piece


def _check_admitted(request: Request) -> None:
    # A database that is away for a moment ends no upload.
    with suppress(StoreUnavailable):
        if not request.state.is_admitted():
            raise Unauthorized("This API key was revoked or has expired, or its browser was signed out, meanwhile.")


async def _receive(request: Request, reader: FormReader, room: _Room) -> None:
    def write(chunk: bytes) -> None:
        room.take(len(chunk))
        reader.write(chunk)

    try:
        async for chunk in read_pieces(request):
            await anyio.to_thread.run_sync(write, chunk)
        reader.finish()
    except OSError as error:
        raise unavailable(error, _NOT_KEPT) from error


async def _request(model: type[Form], request: Request) -> Form:
    try:
        return _checked(model, parsed(await request.body()))
    except (ValueError, RecursionError):
        raise no_json() from None


def _checked(model: type[Form], fields: Any) -> Form:
    with as_request_errors(fields):
        return model.model_validate(fields)


LONGEST: Final = 200

# Names that programs write where there is no file: curl from a pipe, browsers, HTTP libraries.
_PLACEHOLDERS: Final = frozenset({"-", "blob", "file", "upload"})
_FILE_NAME: Final = "filename"


def clean_label(sent: str) -> str | None:
    """The name of a file without folders, printable and no longer than a name may be; None if nothing is left.

    Args:
        sent: The name that a client sent: perhaps a path of another system, with what the form cannot hold as %22.
    """
    base = unquote(sent, errors="replace").replace("\\", "/").rpartition("/")[2]
    spaced = "".join(" " if character.isspace() else character for character in unicodedata.normalize("NFC", base))
    name = " ".join("".join(filter(str.isprintable, spaced)).split())[:LONGEST].rstrip()
    nameless = name.startswith(".") or name.lower() in _PLACEHOLDERS
    return None if nameless or not name else name


def label_in(upload_metadata: str | None) -> str | None:
    """The label that the tus header `Upload-Metadata` calls for, if it has a file name.

    Raises:
        InvalidInput: It is not as tus describes it.
    """
    pairs = [pair.strip().split(" ") for pair in (upload_metadata or "").split(",") if pair.strip()]
    for name, *value in pairs:
        if name == _FILE_NAME and value:
            return clean_label(_decoded(value))
    return None


def build_metadata(label: str | None) -> dict[str, str]:
    """The header that says what was kept of `Upload-Metadata`."""
    return {} if label is None else {"Upload-Metadata": f"{_FILE_NAME} {base64.b64encode(label.encode()).decode()}"}


def _decoded(value: list[str]) -> str:
    try:
        [encoded] = value
        return base64.b64decode(encoded, validate=True).decode()
    except (ValueError, binascii.Error):
        raise InvalidInput(
            "⟦upload_metadata⟧ must be `filename`, a blank and the Base64 of the name in UTF-8."
        ) from None
