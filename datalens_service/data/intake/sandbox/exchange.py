"""Request and outcome of a process that reads a stranger's file, and the way it serves one request.

It gets a request as JSON on its standard input, confines itself, reads the file and leaves `outcome.json` and its
results in its folder. Whatever a hostile file does to it, nothing else is hurt: it has no secrets, no network, no other
file to read and no other place to write to.
"""

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from datalens_service.base.errors import InvalidDataset, PersonsInBothSplits
from datalens_service.base.fields import Frozen
from datalens_service.data.intake.sandbox.confinement import confine
from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles
from datalens_service.data.notices import Notice, NoticeCode

OUTCOME: Final = "outcome.json"
MOST_FILE_BYTES: Final = 2 * DEFAULT_LIMITS.uncompressed_bytes
"""Largest file that any reader needs."""
OUT_OF_MEMORY: Final = "Reading the file needs more memory than is allowed. Upload fewer or smaller images."


class ReadingRequest(Frozen):
    """Limits of a process, and the folder for its results."""

    folder: Path
    memory_bytes: int
    cpu_seconds: int
    file_bytes: int = MOST_FILE_BYTES


class FileRequest(ReadingRequest):
    path: Path


class Counts(Frozen):
    """Numbers of records. Private."""

    train: int = Field(ge=0)
    test: int = Field(ge=0)
    classes: dict[str, int] = Field(description="Training images of each class, in the order of the labels.")
    test_classes: dict[str, int] = Field(default={}, description="Test images of each class.")
    duplicates: int = Field(ge=0)


class ReadingOutcome(Frozen):
    """The outcome of reading. Private, but for `format`, `refusal` and `problem`, which is the type of the refusal."""

    format: str | None = None
    counts: Counts | None = None
    refusal: str | None = None
    problem: Literal["dataset-invalid", "persons-in-both-splits"] = "dataset-invalid"
    bad_files: tuple[BadFile, ...] = ()
    bad_count: int = 0
    checked: int = 0
    notices: tuple[Notice, ...] = Field(default=(), max_length=len(NoticeCode))
    names: tuple[str, ...] = ()


def serve(request: ReadingRequest, read: Callable[[], ReadingOutcome]) -> None:
    """Confine this process, read, and leave the outcome in the folder."""
    # Pillow warns of what it is suspicious of; here, nobody shares the filter.
    warnings.simplefilter("error")
    confine(
        request.folder,
        memory_bytes=request.memory_bytes,
        cpu_seconds=request.cpu_seconds,
        file_bytes=request.file_bytes,
        readable=request.path if isinstance(request, FileRequest) else None,
    )
    try:
        (request.folder / OUTCOME).write_text(attempt(read).model_dump_json())
    except OSError:
        # Faults of the file are refused by `attempt`; this one is the disk's.
        sys.exit(os.EX_IOERR)


def attempt(read: Callable[[], ReadingOutcome]) -> ReadingOutcome:
    """Read, and return the outcome, also if reading fails.

    Raises:
        OSError: The disk did not take the results.
    """
    try:
        return read()
    except UnusableFiles as error:
        problem = "persons-in-both-splits" if isinstance(error, PersonsInBothSplits) else "dataset-invalid"
        found = {"bad_files": error.bad_files, "bad_count": error.count, "checked": error.checked}
        return ReadingOutcome(refusal=error.text, problem=problem, **found)
    except InvalidDataset as error:
        return ReadingOutcome(refusal=error.text)
    except MemoryError:
        return ReadingOutcome(refusal=OUT_OF_MEMORY)
