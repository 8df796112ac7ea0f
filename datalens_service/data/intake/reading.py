"""Reads an upload of any known format.

A file that cannot be used is refused by InvalidDataset, with a sentence that says what to change.
"""

from pathlib import Path

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import Upload
from datalens_service.data.intake.assembly import assemble, with_preparation, with_public_test
from datalens_service.data.intake.persons import note_splits
from datalens_service.data.intake.readers import READERS, recognise_format
from datalens_service.data.intake.reading_choices import AS_IT_IS, ReadingChoices
from datalens_service.data.intake.schema_inference import inspect, without_constant_images
from datalens_service.data.intake.untrusted.images import STRICT, PictureDecoder
from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS, PREPARE_LIMITS, Limits
from datalens_service.data.intake.untrusted.source import Source, open_source
from datalens_service.data.notices import Notice


def detect(path: Path, choices: ReadingChoices = AS_IT_IS, *, limits: Limits = DEFAULT_LIMITS) -> str:
    """Detect the format of an upload, a key of `READERS`, by its contents; its name plays no part.

    Raises:
        InvalidDataset: No reader recognises it, or its archive is refused.
    """
    with open_source(_existing(path), limits, choose_decoder(choices), choices.encoding) as source:
        return recognise_format(source, choices)


def read_upload(path: Path, choices: ReadingChoices = AS_IT_IS, *, limits: Limits | None = None) -> Upload:
    """Read an upload of any known format.

    Args:
        limits: Caps on what is read; None takes those for the choices.

    Returns:
        Schema, training split and test split; the caller adds the partition key to make a `Dataset`.

    Raises:
        InvalidDataset: The file cannot be used; the message says what to change.
    """
    return read_with_notices(path, choices, limits=limits)[0]


def read_with_notices(
    path: Path, choices: ReadingChoices = AS_IT_IS, *, limits: Limits | None = None
) -> tuple[Upload, tuple[Notice, ...]]:
    """Read an upload, and return it with notices for its owner about how it was read. Notices are private."""
    limits = limits or choose_limits(choices)
    with open_source(_existing(path), limits, choose_decoder(choices), choices.encoding) as source:
        _, upload = read_source(source, choices)
        return upload, source.notices.collected()


def read_source(source: Source, choices: ReadingChoices) -> tuple[str, Upload]:
    """Return format and contents of an opened upload; notices for its owner are in `source.notices` afterwards."""
    name = recognise_format(source, choices)
    if choices.label_column is not None and not READERS[name].has_label_column:
        raise InvalidDataset("⟦label_column⟧ was declared, but the upload has no table whose columns hold labels.")
    index = READERS[name].index(source, choices)
    upload, names = assemble(index, choices, source.notices)
    if choices.leave_out_constant_images:
        upload = without_constant_images(upload, source.notices)
    note_splits(upload, names, source.notices)
    if choices.public_test:
        upload = with_public_test(upload, names)
    inspect(upload, source.notices)
    return name, with_preparation(upload, choices.preparation)


def choose_decoder(choices: ReadingChoices) -> PictureDecoder:
    """Return the decoder of the images; the library that reads DICOM is imported where it may be needed."""
    if choices.preparation is None:
        return STRICT
    from datalens_service.data.intake.preparation.pictures import preparing_decoder

    return preparing_decoder(choices.preparation)


def choose_limits(choices: ReadingChoices) -> Limits:
    """Return the caps on what is read: larger where images are resized one by one."""
    return DEFAULT_LIMITS if choices.preparation is None else PREPARE_LIMITS


def _existing(path: Path) -> Path:
    if not path.exists():
        raise InvalidDataset("There is no such file. Name an NPZ, a zip or tar of images, or a Parquet file.")
    return path
