"""The process that reads uploads: `python -m datalens_service.data.intake.sandbox.decode`, started by `sandbox.py`.

The records lie in its folder afterwards; `exchange.py` defines its requests and answers.
"""

import sys
from functools import partial
from typing import Final

import numpy as np

from datalens_service.data.dataset import Schema, Split, Upload
from datalens_service.data.intake.reading import choose_decoder, choose_limits, read_source
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.sandbox.exchange import Counts, FileRequest, ReadingOutcome, serve
from datalens_service.data.intake.stored_dataset import save_dataset
from datalens_service.data.intake.untrusted.images import PictureDecoder
from datalens_service.data.intake.untrusted.source import open_source
from datalens_service.data.notices import Notice, NoticeCode, count_notices

PRIVATE_READS = ("reading the upload",)

RECORDS: Final = "records"


class RecordsRequest(FileRequest):
    """A request to read labelled images, and the choices for that."""

    choices: ReadingChoices


def main() -> None:
    request = RecordsRequest.model_validate_json(sys.stdin.buffer.read())
    # Loads the libraries of the decoder, which a confined process could not.
    serve(request, partial(read_records, request, choose_decoder(request.choices)))


def read_records(request: RecordsRequest, decoder: PictureDecoder) -> ReadingOutcome:
    """Read the upload and keep its records.

    Raises:
        OSError: The disk did not take the records.
    """
    choices = request.choices
    with open_source(request.path, choose_limits(choices), decoder, choices.encoding) as source:
        name, upload = read_source(source, choices)
        save_dataset(upload, request.folder / RECORDS)
        notices = source.notices.collected()
    return ReadingOutcome(format=name, counts=count_records(upload, notices), notices=notices)


def count_records(upload: Upload, notices: tuple[Notice, ...]) -> Counts:
    """Count the records of an upload. Private."""
    return Counts(
        train=len(upload.train.labels),
        test=0 if upload.test is None else len(upload.test.labels),
        classes=_per_class(upload.schema, upload.train),
        test_classes={} if upload.test is None else _per_class(upload.schema, upload.test),
        duplicates=count_notices(NoticeCode.REPEATED_IMAGES, notices),
    )


def _per_class(schema: Schema, split: Split) -> dict[str, int]:
    counted = np.bincount(split.labels, minlength=schema.num_classes)
    return dict(zip(schema.class_names, map(int, counted), strict=True))


if __name__ == "__main__":
    main()
