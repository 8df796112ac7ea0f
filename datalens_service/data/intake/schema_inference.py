"""A check of classes and images for usual mistakes: too few, nearly black, constant or repeated ones."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import Images, Labels, Upload
from datalens_service.data.intake.assembly import with_training_rows
from datalens_service.data.notices import NoticeCode, Notices

PRIVATE_READS = ("reading the upload",)

Rows = NDArray[np.int64]

_NEARLY_BLACK: Final = 15
_IMBALANCE: Final = 100
_BLOCK_BYTES: Final = 2**24


def inspect(upload: Upload, notices: Notices) -> None:
    """Note unusual classes and unusual images."""
    _inspect_classes(upload, notices)
    images, labels = upload.train.images, upload.train.labels
    notices.add(NoticeCode.NEARLY_BLACK, map(_named, nearly_black_rows(images)))
    notices.add(NoticeCode.CONSTANT_IMAGES, map(_named, constant_rows(images)))
    digests = _digests(images)
    notices.add(NoticeCode.REPEATED_IMAGES, map(_named, _repeated(digests)))
    notices.add(NoticeCode.CONFLICTING_LABELS, map(_named, _conflicting(digests, labels)))
    if upload.test is not None:
        known = set(digests)
        shared = (row for row, digest in enumerate(_digests(upload.test.images)) if digest in known)
        notices.add(NoticeCode.TEST_IN_TRAIN, (f"test image {row}" for row in shared))


def _inspect_classes(upload: Upload, notices: Notices) -> None:
    counts = np.bincount(upload.train.labels, minlength=upload.schema.num_classes)
    named = list(zip(upload.schema.class_names, counts.tolist(), strict=True))
    notices.add(NoticeCode.EMPTY_CLASSES, (name for name, count in named if count == 0))
    notices.add(NoticeCode.SINGLE_IMAGE_CLASSES, (name for name, count in named if count == 1))
    small = (name for name, count in named if 0 < count < counts.max() / _IMBALANCE)
    notices.add(NoticeCode.IMBALANCED_CLASSES, small)


def constant_rows(images: Images) -> Rows:
    """Return the rows of images that show a single colour, int64, ascending."""
    return _rows(images, lambda block: (block == block[:, :1, :1]).all(axis=(1, 2, 3)))


def nearly_black_rows(images: Images) -> Rows:
    """Return the rows of images without a value above 15.

    Constant ones are left out, as a black image may be meant, unless all images are nearly black.
    """
    dark = _rows(images, lambda block: block.max(axis=(1, 2, 3)) <= _NEARLY_BLACK)
    constant = constant_rows(images)
    if len(dark) == len(images) > len(constant):
        return dark
    return np.setdiff1d(dark, constant)


def without_constant_images(upload: Upload, notices: Notices) -> Upload:
    """Return the upload without training images of a single colour; each depends on its own pixels alone.

    Raises:
        InvalidDataset: Fewer than two units remain.
    """
    rows = constant_rows(upload.train.images)
    if not len(rows):
        return upload
    notices.add(NoticeCode.CONSTANT_IMAGES_LEFT_OUT, map(_named, rows))
    stay = np.setdiff1d(np.arange(len(upload.train.labels)), rows)
    if not len(stay):
        raise InvalidDataset("All training images show a single colour; none remains without them.")
    return with_training_rows(upload, stay)


def _digests(images: Images) -> list[bytes]:
    """Hash the images, as all pixels together may nearly fill the memory."""
    return [hashlib.sha256(image.tobytes()).digest() for image in images]


def _repeated(digests: list[bytes]) -> list[int]:
    seen: set[bytes] = set()
    repeated = []
    for row, digest in enumerate(digests):
        if digest in seen:
            repeated.append(row)
        seen.add(digest)
    return repeated


def _conflicting(digests: list[bytes], labels: Labels) -> list[int]:
    """Return the rows whose pixels an earlier row has under another label."""
    first: dict[bytes, int] = {}
    return [row for row, digest in enumerate(digests) if labels[first.setdefault(digest, row)] != labels[row]]


def _rows(images: Images, holds: Callable[[Images], NDArray[np.bool_]]) -> Rows:
    """Return the rows for which `holds` is true, block by block: an upload may nearly fill the memory."""
    blocks = [start + np.flatnonzero(holds(images[start:stop])) for start, stop in _blocks(images)]
    return np.concatenate(blocks) if blocks else np.empty(0, dtype=np.int64)


def _blocks(images: Images) -> Iterator[tuple[int, int]]:
    rows = max(1, _BLOCK_BYTES // max(1, images[:1].nbytes))
    return ((start, min(start + rows, len(images))) for start in range(0, len(images), rows))


def _named(row: int) -> str:
    return f"image {row}"
