"""IDX, the format of MNIST: a zip or tar of the files of images and labels, each with or without gzip.

    train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz]
    t10k-images-idx3-ubyte[.gz],  t10k-labels-idx1-ubyte[.gz]      a test split, if there is one

Contents tell images from labels. A name with `t10k` or `test` in it belongs to the test split.
"""

import gzip
import io
import math
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import Images
from datalens_service.data.intake.preparation.arrays import convert_pixels
from datalens_service.data.intake.readers.base import Reader, RecordIndex, UploadIndex
from datalens_service.data.intake.readers.image_entries import is_ignored
from datalens_service.data.intake.readers.labels import column_of_array
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.entries import DAMAGED, FileEntry, refusing
from datalens_service.data.intake.untrusted.images import DecodedImages
from datalens_service.data.intake.untrusted.source import GZIP, Source, allowance
from datalens_service.data.notices import NoticeCode

_IMAGES, _LABELS = (3, 4), (1,)
_UNSIGNED_BYTES: Final = b"\0\0\x08"
_TEST: Final = ("t10k", "test")
_HEAD_BYTES: Final = 2**12
_MOST_FILES: Final = 8


class _File(NamedTuple):
    """One IDX file of the archive."""

    entry: FileEntry
    axes: int
    is_test: bool


def recognises(source: Source, choices: ReadingChoices) -> bool:
    return 0 < len(_candidates(source)) <= _MOST_FILES and len(_files(source)) >= 2


def index(source: Source, choices: ReadingChoices) -> UploadIndex:
    """Index the labels of MNIST's files and their like; this format has no groups."""
    files = _files(source)
    read_names = {file.entry.filename for file in files}
    others = (entry.filename for entry in source.entries if entry.filename not in read_names)
    source.notices.add(NoticeCode.IGNORED_FILES, others)
    tests = [file for file in files if file.is_test]
    return UploadIndex(
        _index("the training labels", [file for file in files if not file.is_test], source, choices),
        _index("the test labels", tests, source, choices) if tests else None,
    )


READER = Reader(
    name="idx",
    title="a zip or tar of the IDX files of MNIST",
    layout="MNIST's own files, with or without gzip",
    suffixes=(".zip", ".tar", ".gz", ".tgz"),
    recognises=recognises,
    index=index,
)


def _index(called: str, files: list[_File], source: Source, choices: ReadingChoices) -> RecordIndex:
    images = [file for file in files if file.axes in _IMAGES]
    labels = [file for file in files if file.axes in _LABELS]
    if len(images) != 1 or len(labels) != 1:
        raise InvalidDataset(
            "Put one file of images and one of labels into the archive, and, for a test split, one more of each with "
            "t10k or test in its name."
        )
    pixels, numbers = _array(source, images[0]), _array(source, labels[0])
    if len(pixels) != len(numbers):
        raise InvalidDataset(f"There must be one label per image: {len(numbers):,} labels for {len(pixels):,} images.")

    def read(first: Images | None) -> DecodedImages:
        name = images[0].entry.filename
        decoded = convert_pixels(pixels, name, choices.settled_preparation(first), source.notices)
        return DecodedImages(decoded, np.arange(len(pixels)))

    return RecordIndex(called, column_of_array(numbers), read)


def _candidates(source: Source) -> list[FileEntry]:
    return [entry for entry in source.entries if not is_ignored(entry.filename)]


def _files(source: Source) -> list[_File]:
    files = []
    for entry in _candidates(source):
        start = _start(source, entry)
        if start[:3] == _UNSIGNED_BYTES and len(start) == 4 and start[3] in (*_IMAGES, *_LABELS):
            name = entry.filename.rpartition("/")[2].casefold()
            files.append(_File(entry, start[3], any(word in name for word in _TEST)))
    return files


def _start(source: Source, entry: FileEntry) -> bytes:
    """Read the magic number, without gzip; empty if it is damaged."""
    head = source.head(entry, _HEAD_BYTES)
    if not head.startswith(GZIP):
        return head[:4]
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(head)).read1(4)[:4]
    except (OSError, EOFError, ValueError, zlib.error):
        return b""


def _array(source: Source, file: _File) -> NDArray[Any]:
    with refusing(DAMAGED):
        packed = source.head(file.entry, file.entry.file_size)
        stream: Any = gzip.GzipFile(fileobj=io.BytesIO(packed)) if packed.startswith(GZIP) else io.BytesIO(packed)
        header = stream.read(4 * (1 + file.axes))
        shape = tuple(int(length) for length in np.frombuffer(header, dtype=">u4", offset=4))
        size = math.prod(shape)
        if size == 0:
            raise InvalidDataset("There are no images, or none with pixels.")
        if size > allowance(len(packed), source.limits):
            raise InvalidDataset(f"The images unpack to more than {source.limits.ratio} times their size.")
        # One byte more than there should be: nothing may follow.
        content = stream.read(size + 1)
        if len(content) != size:
            raise InvalidDataset(DAMAGED)
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
