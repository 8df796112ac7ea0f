"""Reading of a stranger's file in a process of its own, which is killed when it takes too long or too much room."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from datalens_service.base.audience import Private
from datalens_service.base.errors import InsufficientStorage, InvalidDataset, PersonsInBothSplits, StoreUnavailable
from datalens_service.data import READERS
from datalens_service.data.dataset import Schema, Upload
from datalens_service.data.intake.identifying_names import identifying_names
from datalens_service.data.intake.readers.base import check_class_names
from datalens_service.data.intake.reading_choices import AS_IT_IS, ReadingChoices
from datalens_service.data.intake.sandbox.decode import RECORDS, RecordsRequest
from datalens_service.data.intake.sandbox.decode_images import IMAGES, ImagesRequest
from datalens_service.data.intake.sandbox.exchange import (
    MOST_FILE_BYTES,
    OUT_OF_MEMORY,
    OUTCOME,
    Counts,
    ReadingOutcome,
    ReadingRequest,
)
from datalens_service.data.intake.stored_dataset import load_dataset
from datalens_service.data.intake.untrusted.validation_errors import BadFile
from datalens_service.data.notices import Notice

PRIVATE_READS = ("reading the upload",)

_DATASET: Final = "datalens_service.data.intake.sandbox.decode"
_IMAGES: Final = "datalens_service.data.intake.sandbox.decode_images"
_OUTCOME_BYTES: Final = 2**22
_POLL_SECONDS: Final = 0.1
_PASSED_ON: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT")
BROKEN: Final = "The file could not be read: it breaks the program that reads it. Create it again."
TOO_SLOW: Final = "Reading the file took too long. Upload fewer or smaller images."
NO_ROOM: Final = (
    "The images of this file need more room than the disk of the service has. Upload fewer or smaller images, or ask "
    "the operator for room."
)


@dataclass(frozen=True)
class Confinement:
    """Limits of the process.

    Attributes:
        seconds: Until it is killed, of the clock and of the processor.
        file_bytes: Largest file that it may write.
        spare_bytes: Room that it has to leave on the disk, or is killed; one file alone cannot take it.
    """

    memory_bytes: int
    seconds: int
    file_bytes: int = MOST_FILE_BYTES
    spare_bytes: int = 0


class Refused(InvalidDataset):
    """A refusal of an upload, with details for its owner beside the sentence."""

    def __init__(self, outcome: ReadingOutcome) -> None:
        super().__init__(outcome.refusal or BROKEN)
        self.bad_files: tuple[BadFile, ...] = outcome.bad_files
        self.bad_count = outcome.bad_count
        self.checked = outcome.checked

    @property
    def validation_errors(self) -> dict[str, Any]:
        """Return `bad_files`, `bad_count` and `checked`, for the owner. Private."""
        files = [file.model_dump() for file in self.bad_files]
        return {"bad_files": files, "bad_count": self.bad_count, "checked": self.checked}


class RefusedForPersons(PersonsInBothSplits, Refused):
    """A refusal because persons are in both splits."""


@dataclass(frozen=True)
class Decoded:
    """A file that was read; its records lie in `records`.

    Attributes:
        records: Folder as `data.intake.stored_dataset` writes it.
        upload: The same, opened.
        counts: For its owner.
        notices: Notices for its owner about how it was read. Private.
    """

    format: str
    records: Path
    upload: Upload
    counts: Private[Counts]
    notices: tuple[Notice, ...]


def decode(
    path: Path,
    folder: Path,
    confinement: Confinement,
    choices: ReadingChoices = AS_IT_IS,
    *,
    stopping: Callable[[], bool] = lambda: False,
) -> Decoded:
    """Read an upload in a confined process.

    Args:
        stopping: Called now and then; True gives up.

    Raises:
        Refused: The file cannot be used.
        InsufficientStorage: The disk did not take the records.
        StoreUnavailable: The service stops.
    """
    request = RecordsRequest(
        path=path.absolute(),
        folder=folder.absolute(),
        choices=choices,
        memory_bytes=confinement.memory_bytes,
        cpu_seconds=confinement.seconds,
        file_bytes=min(confinement.file_bytes, MOST_FILE_BYTES),
    )
    outcome = _outcome(folder, _run(request, confinement, stopping), confinement)
    if outcome.refusal is not None and outcome.problem == PersonsInBothSplits.slug:
        raise RefusedForPersons(outcome)
    if outcome.refusal is not None or outcome.format not in READERS or outcome.counts is None:
        raise Refused(outcome)
    # The process may have been taken over: its results are checked like all input from outside.
    upload = load_dataset(folder / RECORDS)
    _check_schema(upload.schema, choices)
    return Decoded(outcome.format, folder / RECORDS, upload, Private(outcome.counts), outcome.notices)


def _check_schema(schema: Schema, choices: ReadingChoices) -> None:
    check_class_names(schema.class_names)
    as_declared = (
        schema.test_is_public == choices.public_test
        and (choices.preparation is None or schema.preparation == choices.preparation.settled(schema.channels))
        and (choices.allow_identifying_classes or not identifying_names(schema.class_names))
    )
    if not as_declared:
        raise Refused(ReadingOutcome(refusal=BROKEN))


def decode_images(path: Path, folder: Path, confinement: Confinement, most_images: int) -> tuple[Path, tuple[str, ...]]:
    """Read images without labels in a confined process.

    Returns:
        Path of the uint8 array (n, height, width, channels) as .npy, and the names of the files, if they have any.

    Raises:
        Refused: The file cannot be used.
        InsufficientStorage: The disk did not take the images.
    """
    request = ImagesRequest(
        path=path.absolute(),
        folder=folder.absolute(),
        most_images=most_images,
        memory_bytes=confinement.memory_bytes,
        cpu_seconds=confinement.seconds,
        file_bytes=min(confinement.file_bytes, MOST_FILE_BYTES),
    )
    outcome = _outcome(folder, _run(request, confinement, lambda: False, _IMAGES), confinement)
    images = folder / IMAGES
    if outcome.refusal is not None or images.is_symlink() or not images.is_file():
        raise Refused(outcome)
    return images, outcome.names


def run_confined(request: ReadingRequest, seconds: int, program: str, attachment: bytes) -> None:
    """Run another program of this room.

    Raises:
        Refused: Its input cannot be used.
        InsufficientStorage: The disk did not take its results.
    """
    confinement = Confinement(request.memory_bytes, seconds)
    outcome = _outcome(request.folder, _run(request, confinement, lambda: False, program, attachment), confinement)
    if outcome.refusal is not None:
        raise Refused(outcome)


def _run(
    request: ReadingRequest,
    confinement: Confinement,
    stopping: Callable[[], bool],
    program: str = _DATASET,
    attachment: bytes = b"",
) -> int:
    """Run the process and return its exit status; an attachment follows the line of its request."""
    with subprocess.Popen(  # noqa: S603 (our own interpreter, and one of the modules above)
        [sys.executable, "-P", "-m", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # A parser may print parts of a private file, which must not reach a log.
        stderr=subprocess.DEVNULL,
        cwd=request.folder,
        env=_environment(request.folder),
        start_new_session=True,
    ) as process:
        try:
            return _waited(process, request, confinement, stopping, attachment)
        finally:
            process.kill()


def _waited(
    process: subprocess.Popen[bytes],
    request: ReadingRequest,
    confinement: Confinement,
    stopping: Callable[[], bool],
    attachment: bytes,
) -> int:
    # If it died at once, its exit status says so.
    with suppress(BrokenPipeError), process.stdin or nullcontext() as pipe:
        if pipe is not None:
            pipe.write(request.model_dump_json().encode() + b"\n")
            pipe.write(attachment)
    deadline = time.monotonic() + confinement.seconds
    while time.monotonic() < deadline:
        try:
            return process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if stopping():
                raise StoreUnavailable("The service stops; the upload is read when it has started again.") from None
            if shutil.disk_usage(request.folder).free < confinement.spare_bytes:
                raise Refused(ReadingOutcome(refusal=NO_ROOM)) from None
    raise Refused(ReadingOutcome(refusal=TOO_SLOW))


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment without secrets, with one thread, and with memory that is taken when it is needed."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    fixed = {"TMPDIR": str(folder), "ARROW_DEFAULT_MEMORY_POOL": "system", "PYTHONDONTWRITEBYTECODE": "1"}
    # Else a thread of onnxruntime reports to its makers, and the process is killed when that thread asks for a socket.
    silent = {"ORT_DISABLE_TELEMETRY": "1"}
    return passed_on | single | fixed | silent


def _outcome(folder: Path, status: int, confinement: Confinement) -> ReadingOutcome:
    path = folder / OUTCOME
    if status == os.EX_IOERR:
        if 0 < confinement.spare_bytes <= shutil.disk_usage(folder).free:
            # The disk takes more: it was the largest file that is allowed.
            raise Refused(ReadingOutcome(refusal=NO_ROOM))
        raise InsufficientStorage("The records could not be kept; free the disk of ⟦DATALENS_DATA_DIR⟧.")
    try:
        if path.is_symlink() or path.stat().st_size > _OUTCOME_BYTES:
            raise Refused(ReadingOutcome(refusal=BROKEN))
        return ReadingOutcome.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        # Killed for its processor time or memory, or by a fault in a parser.
        raise Refused(ReadingOutcome(refusal=BROKEN if status >= 0 else OUT_OF_MEMORY)) from None
    except ValidationError:
        raise Refused(ReadingOutcome(refusal=BROKEN)) from None
