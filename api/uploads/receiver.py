"""Receiving an upload: the file goes to the disk of the data folder as it arrives and is gone after the request.

The key is checked before the first byte is read, and no more than a chunk is in memory. The name of the file is used
for the name of a data set alone.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TypeVar

import anyio.to_thread
from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from api.deps import ServicesDep, caller
from api.http.strictness import no_json, parsed, typed
from api.schemas.classifiers import PredictionForm, PredictionRequest
from api.schemas.datasets import DatasetRequest
from api.schemas.individual_epsilon import IndividualEpsilonForm, IndividualEpsilonRequest
from api.schemas.releases import GeneratorForm
from api.uploads.file_names import label_of
from api.uploads.multipart import FormReader
from datalens_service.services.dataset_declaration import DatasetForm
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.disk import unavailable

FILE_FIELD: Final = "file"
Form = TypeVar("Form", bound=BaseModel)


@dataclass(frozen=True)
class ReceivedUpload:
    """An upload on the disk, for the time of one request.

    Attributes:
        path: The file, as it came.
        form: The checked fields beside it.
    """

    path: Path
    form: DatasetForm


async def received_upload(
    request: Request, services: ServicesDep, _caller: Annotated[ApiKey, Depends(caller)]
) -> AsyncIterator[ReceivedUpload | DatasetRequest]:
    """Receive the upload of this request, or the name of one that is there already.

    A file that comes with the request is removed when the handler has ended.

    Raises:
        HTTPException: 415, not multipart/form-data; 413, longer than the limit.
        RequestValidationError: Malformed, without exactly one file, or a field is unknown or not usable.
        InsufficientStorage: The disk is full.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
        yield await _request(DatasetRequest, request)
        return
    with _temporary_file(incoming_folder(services.settings.data_dir)) as (file, path):
        reader = FormReader(request.headers.get("content-type", ""), FILE_FIELD, file)
        await _receive(request, reader)
        fields = {"name": label_of(reader.file_name), **typed(DatasetForm, reader.fields)}
        yield ReceivedUpload(path, _checked(DatasetForm, fields))


@dataclass(frozen=True)
class ReceivedGenerator:
    """A generator on the disk, for the time of one request.

    Attributes:
        path: The file, as it came.
        form: The checked fields beside it.
    """

    path: Path
    form: GeneratorForm


async def received_generator(
    request: Request, services: ServicesDep, _caller: Annotated[ApiKey, Depends(caller)]
) -> AsyncIterator[ReceivedGenerator]:
    """Receive the generator of this request; its file is removed when the handler has ended.

    Raises:
        HTTPException: 415, not multipart/form-data; 413, longer than the limit.
        RequestValidationError: Malformed, without exactly one file, or a field is unknown or not usable.
        InsufficientStorage: The disk is full.
    """
    with _temporary_file(incoming_folder(services.settings.data_dir)) as (file, path):
        reader = FormReader(request.headers.get("content-type", ""), FILE_FIELD, file)
        await _receive(request, reader)
        yield ReceivedGenerator(path, _checked(GeneratorForm, typed(GeneratorForm, reader.fields)))


async def received_images(
    request: Request, services: ServicesDep, _caller: Annotated[ApiKey, Depends(caller)]
) -> AsyncIterator[Path | PredictionRequest]:
    """Receive the images of this request as a file, which is removed when the handler has ended, or as numbers.

    Raises:
        HTTPException: 415, not multipart/form-data; 413, longer than the limit.
        RequestValidationError: Malformed, without exactly one file, or a field is unknown or not usable.
        InsufficientStorage: The disk is full.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
        yield await _request(PredictionRequest, request)
        return
    with _temporary_file(incoming_folder(services.settings.data_dir)) as (file, path):
        reader = FormReader(request.headers.get("content-type", ""), FILE_FIELD, file)
        await _receive(request, reader)
        _checked(PredictionForm, reader.fields)
        yield path


@dataclass(frozen=True)
class ReceivedRecord:
    """An image on the disk, for the time of one request.

    Attributes:
        path: The file, as it came.
        form: The checked fields beside it.
    """

    path: Path
    form: IndividualEpsilonForm


async def received_record(
    request: Request, services: ServicesDep, _caller: Annotated[ApiKey, Depends(caller)]
) -> AsyncIterator[ReceivedRecord | IndividualEpsilonRequest]:
    """Receive the record of this request as a file, which is removed when the handler has ended, or as numbers.

    Raises:
        HTTPException: 415, not multipart/form-data; 413, longer than the limit.
        RequestValidationError: Malformed, without exactly one file, or a field is unknown or not usable.
        InsufficientStorage: The disk is full.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
        yield await _request(IndividualEpsilonRequest, request)
        return
    with _temporary_file(incoming_folder(services.settings.data_dir)) as (file, path):
        reader = FormReader(request.headers.get("content-type", ""), FILE_FIELD, file)
        await _receive(request, reader)
        form = _checked(IndividualEpsilonForm, typed(IndividualEpsilonForm, reader.fields))
        yield ReceivedRecord(path, form)


RecordUploadDep = Annotated[ReceivedRecord | IndividualEpsilonRequest, Depends(received_record, scope="function")]
ImagesUploadDep = Annotated[Path | PredictionRequest, Depends(received_images, scope="function")]
GeneratorUploadDep = Annotated[ReceivedGenerator, Depends(received_generator, scope="function")]
UploadDep = Annotated[ReceivedUpload | DatasetRequest, Depends(received_upload, scope="function")]


def incoming_folder(data_dir: Path) -> Path:
    """Where uploads lie while they are read."""
    return data_dir.absolute() / "incoming"


def remove_leftovers(data_dir: Path) -> None:
    """Remove uploads of processes that were killed; a living one holds a lock on its own."""
    for path in incoming_folder(data_dir).glob("upload-*"):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


@contextmanager
def _temporary_file(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(prefix="upload-", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file, Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


async def _receive(request: Request, reader: FormReader) -> None:
    try:
        async for chunk in request.stream():
            await anyio.to_thread.run_sync(reader.write, chunk)
        reader.finish()
    except OSError as error:
        raise unavailable(error, "The upload could not be kept; free the disk of the data folder.") from error


async def _request(model: type[Form], request: Request) -> Form:
    try:
        return _checked(model, parsed(await request.body()))
    except (ValueError, RecursionError):
        raise no_json() from None


def _checked(model: type[Form], fields: Any) -> Form:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in errors], body=fields) from None
