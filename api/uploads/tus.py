"""Resumable uploads as tus 1.0 describes them: the headers, and bytes on the disk.

A chunk counts once it is on the disk and noted in the database. Without a checksum, what arrived before the
connection broke counts as well; with one, all of a chunk counts or nothing.
"""

import base64
import binascii
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import format_datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from datalens_service.api.addresses import inner_path
from datalens_service.api.http.middleware import Middleware
from datalens_service.base.errors import ChecksumMismatch, ProtocolMismatch, UploadLocked
from datalens_service.store import disk
from datalens_service.store.datasets.upload_sessions import PartialUpload

VERSION: Final = "1.0.0"
EXTENSIONS: Final = "creation,checksum,termination,expiration"
ALGORITHMS: Final = ("sha256", "sha1")
MEDIA_TYPE: Final = "application/offset+octet-stream"
PATH: Final = "/v1/uploads"


class Checksum(NamedTuple):
    """The digest that a chunk must have."""

    algorithm: str
    digest: bytes


class TusHeaders(Middleware):
    """Every answer about uploads names the version of the protocol."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Tus-Resumable"] = headers["Tus-Version"] = VERSION
            await send(message)

        await self._app(scope, receive, with_version if inner_path(scope).startswith(PATH) else send)


def check_version(named: str | None) -> None:
    """Refuse a client that speaks another version."""
    if named != VERSION:
        raise ProtocolMismatch("⟦send_version⟧.")


def build_headers(upload: PartialUpload) -> dict[str, str]:
    """Return headers that say how far an upload is, and until when it is kept."""
    return {
        "Upload-Offset": str(upload.received),
        "Upload-Length": str(upload.length),
        "Upload-Expires": format_datetime(upload.expires_at, usegmt=True),
        "Cache-Control": "no-store",
    }


def parse_checksum(header: str | None) -> Checksum | None:
    """The header `Upload-Checksum`, if there is one.

    Raises:
        HTTPException: 400, malformed, or of an algorithm that is not offered, as tus wants it.
    """
    if header is None:
        return None
    algorithm, _, digest = header.strip().partition(" ")
    if algorithm not in ALGORITHMS:
        raise HTTPException(400)
    try:
        return Checksum(algorithm, base64.b64decode(digest, validate=True))
    except binascii.Error:
        raise HTTPException(400) from None


class Chunk:
    """Bytes on their way to the end of an upload.

    A request that is cancelled does not stop the thread that writes for it: behind `interrupt` nothing is written.
    """

    def __init__(self, file: BinaryIO, upload: PartialUpload, checksum: Checksum | None) -> None:
        self._file, self._upload, self._checksum = file, upload, checksum
        self._hash = hashlib.new(checksum.algorithm if checksum else "sha256", usedforsecurity=False)
        self._end = upload.received
        self._writing, self._interrupted = threading.Lock(), False
        # A killed process may have left more than it noted.
        self.discard()

    def write(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            HTTPException: 413, more than was announced.
        """
        if self._end + len(data) > self._upload.length:
            raise HTTPException(413)
        with self._writing, translated():
            if self._interrupted:
                return
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
            if self._checksum is not None:
                self._hash.update(data)
            self._end += len(data)

    def finish(self) -> int:
        """Make all of it durable; bytes of the upload that are there now."""
        if self._checksum is not None and self._hash.digest() != self._checksum.digest:
            raise ChecksumMismatch("The chunk was damaged on its way, or the checksum is of another chunk.")
        return self._synced()

    def interrupt(self) -> int:
        """Make durable what may count although the rest did not come; bytes that are there."""
        with self._writing:
            self._interrupted = True
            return self._synced() if self._checksum is None else self._upload.received

    def discard(self) -> None:
        """Remove the bytes that arrived, so that the upload is as before the request."""
        self._file.truncate(self._upload.received)
        self._file.seek(self._upload.received)

    def _synced(self) -> int:
        with translated():
            os.fsync(self._file.fileno())
        return self._end


@contextmanager
def locked_file(path: Path) -> Iterator[BinaryIO]:
    """The file of an upload, for this request alone."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UploadLocked("Another request is adding to this upload.") from None
        yield file


@contextmanager
def translated() -> Iterator[None]:
    """Say of an error of the disk what it means.

    Raises:
        InsufficientStorage: The disk is full.
        StoreUnavailable: Something else.
    """
    with disk.translated(
        "Nothing of this chunk was kept; look at the disk of ⟦DATALENS_DATA_DIR⟧, and free it if it is full."
    ):
        yield
