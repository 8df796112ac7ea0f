"""The process that reads uploads: `python -m datalens_service.data.sandbox.decode`, started by `sandbox.py`.

It gets a request as JSON on its standard input, confines itself, reads the file and leaves `outcome.json` and the
records in its folder. Whatever a hostile file does to it, nothing else is hurt: it has no secrets, no network and no
other place to write to.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from datalens_service.data import DEFAULT_LIMITS, decoder_for, limits_for, read_source
from datalens_service.data.dataset import Schema, Split, Upload
from datalens_service.data.notices import Notice, NoticeCode, count_notices
from datalens_service.data.reading_choices import ReadingChoices
from datalens_service.data.sandbox.confinement import confine
from datalens_service.data.stored_dataset import save_dataset
from datalens_service.data.untrusted.images import PictureDecoder
from datalens_service.data.untrusted.source import open_source
from datalens_service.data.untrusted.validation_errors import BadFile, UnusableFiles
from datalens_service.errors import InvalidDataset

OUTCOME: Final = "outcome.json"
RECORDS: Final = "records"
OUT_OF_MEMORY: Final = "Reading the file needs more memory than is allowed. Upload fewer or smaller images."


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Request(_Frozen):
    """What to read.

    Attributes:
        path: The file, or a folder of this machine.
        folder: Where results go.
        choices: The owner's.
        memory_bytes: Address space of the process.
        cpu_seconds: Its processor time.
    """

    path: Path
    folder: Path
    choices: ReadingChoices
    memory_bytes: int
    cpu_seconds: int


class Counts(_Frozen):
    """How many records there are. Private."""

    train: int = Field(ge=0)
    test: int = Field(ge=0)
    classes: dict[str, int] = Field(description="Training images of each class, in the order of the labels.")
    test_classes: dict[str, int] = Field(default={}, description="Test images of each class.")
    duplicates: int = Field(ge=0)


class Outcome(_Frozen):
    """What came of it. Private, but for `format` and `refusal`."""

    format: str | None = None
    counts: Counts | None = None
    refusal: str | None = None
    bad_files: tuple[BadFile, ...] = ()
    bad_count: int = 0
    checked: int = 0
    notices: tuple[Notice, ...] = Field(default=(), max_length=len(NoticeCode))
    names: tuple[str, ...] = ()


def main() -> None:
    """Serve one request."""
    request = Request.model_validate_json(sys.stdin.buffer.read())
    decoder = decoder_for(request.choices)
    # Pillow warns of what it is suspicious of; here, nobody shares the filter.
    warnings.simplefilter("error")
    confine(
        request.folder,
        memory_bytes=request.memory_bytes,
        cpu_seconds=request.cpu_seconds,
        file_bytes=2 * DEFAULT_LIMITS.uncompressed_bytes,
    )
    outcome = _read(request, decoder)
    try:
        (request.folder / OUTCOME).write_text(outcome.model_dump_json())
    except OSError:
        sys.exit(os.EX_IOERR)


def _read(request: Request, decoder: PictureDecoder) -> Outcome:
    choices = request.choices
    try:
        with open_source(request.path, limits_for(choices), decoder, choices.encoding) as source:
            name, upload = read_source(source, choices)
            save_dataset(upload, request.folder / RECORDS)
            notices = source.notices.collected()
    except UnusableFiles as error:
        return Outcome(refusal=error.text, bad_files=error.bad_files, bad_count=error.count, checked=error.checked)
    except InvalidDataset as error:
        return Outcome(refusal=error.text)
    except MemoryError:
        return Outcome(refusal=OUT_OF_MEMORY)
    except OSError:
        # What is wrong with the upload is refused above; this is the disk.
        sys.exit(os.EX_IOERR)
    return Outcome(format=name, counts=count_records(upload, notices), notices=notices)


def count_records(upload: Upload, notices: tuple[Notice, ...]) -> Counts:
    """How many records an upload has. Private."""
    return Counts(
        train=len(upload.train),
        test=0 if upload.test is None else len(upload.test),
        classes=_per_class(upload.schema, upload.train),
        test_classes={} if upload.test is None else _per_class(upload.schema, upload.test),
        duplicates=count_notices(NoticeCode.REPEATED_IMAGES, notices),
    )


def _per_class(schema: Schema, split: Split) -> dict[str, int]:
    counted = np.bincount(split.labels, minlength=schema.num_classes)
    return dict(zip(schema.class_names, map(int, counted), strict=True))


if __name__ == "__main__":
    main()
