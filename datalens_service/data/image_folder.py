"""Zip of class folders with PNG or JPEG files.

    class/name.png                              everything is for training
    train/class/name.png, test/class/name.png   with a test split

A `metadata.csv` at the top or in `train/`, with the columns `file_name` (relative to it) and `group`, says which
training images belong to one privacy unit, for example to one person (`groups.py`).

One folder around all of this is allowed. Dot files, `__MACOSX`, the files that desktops leave behind and the
`classes.json` and `card.json` of our own export are ignored; so is a `val`, `valid` or `validation` folder
(see `npz`). Anything else that is not an image is refused. Records are ordered by name, classes by the names
of their folders. All images have the size and mode (8-bit grey or RGB) of the first; metadata is dropped and an
EXIF orientation is not applied.

Pillow's warnings are not turned into errors here: the warning filter belongs to the whole process, and uploads
are read in threads. What it warns about is refused by explicit checks or does not reach the pixels.
"""

from __future__ import annotations

import io
import unicodedata
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from datalens_service.data.archive import Archive, open_archive, refusing, starts_like_zip
from datalens_service.data.dataset import MAXIMUM_SIDE, Images, Split
from datalens_service.data.groups import METADATA, read_groups, units_of
from datalens_service.data.limits import Limits
from datalens_service.data.units import UnitDeclaration
from datalens_service.data.upload import ClassNames, Reader, Upload, build_upload
from datalens_service.errors import InvalidDataset

_FORMATS = ("PNG", "JPEG")
_SUFFIXES = (".png", ".jpg", ".jpeg")
_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_MODES = ("L", "RGB")
_TRAIN, _TEST = "train", "test"
_SPLITS = (_TRAIN, _TEST, "val", "valid", "validation")
_IGNORED_FILES = ("thumbs.db", "desktop.ini", "classes.json", "card.json")
_PNG_BIT_DEPTH = 24
"""Offset of the bit depth in a PNG: signature (8), chunk length and type (8), width and height (8)."""


class _File(NamedTuple):
    """An image file and where it belongs."""

    parts: tuple[str, ...]
    entry: zipfile.ZipInfo


def recognises(path: Path, limits: Limits) -> bool:
    """Whether the file is a zip with a PNG or JPEG in it."""
    if not starts_like_zip(path):
        return False
    with open_archive(path, limits) as archive:
        images = (entry for entry in archive.entries if _is_image(entry.filename) and not _is_ignored(entry.filename))
        first = next(images, None)
        return first is not None and archive.head(first, len(_MAGIC[0])).startswith(_MAGIC)


def read(path: Path, *, class_names: ClassNames | None, units: UnitDeclaration | None, limits: Limits) -> Upload:
    """Read a zip of class folders.

    Args:
        path: The file.
        class_names: Public names; by default the names of the folders in sorted order. If they contain every
            folder's name, they set the order (and may declare classes without images); if they contain none,
            they rename the sorted folders.
        units: What one unit is, if there is a metadata.csv with groups.
        limits: Caps on what is unpacked and decoded.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    with open_archive(path, limits) as archive:
        groups = read_groups(archive)
        files = _files(archive.entries, limits)
        directories = sorted({file.parts[-2] for file in files})
        names = class_names or tuple(directories)
        label_of = _label_of(directories, names)
        first = _decode(archive, files[0].entry, limits)
        _check_decoded_size(first, len(files), limits)
        splits = {
            split: _read_split(archive, [file for file in files if file.parts[0] == split], label_of, first, limits)
            for split in (_TRAIN, _TEST)
        }
        train_files = [file.entry.filename for file in files if file.parts[0] == _TRAIN]
        train = replace(splits[_TRAIN], units=None if groups is None else units_of(train_files, groups))
    if len(train) == 0:
        raise InvalidDataset("There are no training images. Put them into class folders, or into train/<class>/.")
    return build_upload(train, splits[_TEST] if len(splits[_TEST]) else None, names, units)


READER = Reader(recognises, read)


def _files(entries: Iterable[zipfile.ZipInfo], limits: Limits) -> list[_File]:
    """Images of the training and test split as (split, class, name), ordered by name."""
    entries = [entry for entry in entries if not _is_ignored(entry.filename)]
    for entry in entries:
        _check_entry(entry, limits)
    # macOS stores names in decomposed form; the same class must have the same name everywhere.
    files = [_File(tuple(unicodedata.normalize("NFC", entry.filename).split("/")), entry) for entry in entries]
    files = _with_split(_without_wrapper(sorted(files, key=lambda file: file.parts)))
    files = [file for file in files if file.parts[0] in (_TRAIN, _TEST)]
    if not files:
        raise InvalidDataset("The archive holds no PNG or JPEG images in class folders.")
    return files


def _is_ignored(name: str) -> bool:
    components = name.split("/")
    hidden = any(component.startswith(".") for component in components)
    return hidden or components[0] == "__MACOSX" or components[-1].casefold() in (*_IGNORED_FILES, METADATA)


def _is_image(name: str) -> bool:
    return name.casefold().endswith(_SUFFIXES)


def _check_entry(entry: zipfile.ZipInfo, limits: Limits) -> None:
    if not _is_image(entry.filename):
        raise InvalidDataset("Only PNG and JPEG files in class folders are accepted. Remove everything else.")
    ratio_cap = max(limits.image_ratio_free_bytes, limits.ratio * entry.compress_size)
    if entry.file_size > min(limits.image_file_bytes, ratio_cap):
        raise InvalidDataset("At least one image file is too large for what it holds. Save the images again as PNG.")


def _without_wrapper(files: list[_File]) -> list[_File]:
    """Drop a folder that everything lies in."""
    while files and all(len(file.parts) > 2 for file in files) and len({file.parts[0] for file in files}) == 1:
        if files[0].parts[0] in _SPLITS:
            break
        files = [_File(file.parts[1:], file.entry) for file in files]
    return files


def _with_split(files: list[_File]) -> list[_File]:
    """All as (split, class, name)."""
    if all(len(file.parts) == 2 for file in files):
        return [_File((_TRAIN, *file.parts), file.entry) for file in files]
    if all(len(file.parts) == 3 and file.parts[0] in _SPLITS for file in files):
        return files
    raise InvalidDataset(
        "Arrange the images as <class>/<file>, or as train/<class>/<file> and test/<class>/<file>, without further "
        "folders."
    )


def _label_of(directories: Sequence[str], class_names: ClassNames) -> dict[str, int]:
    """Label of every folder: by name if the names are those of the folders, else by sorted position."""
    known = [directory for directory in directories if directory in class_names]
    if len(known) == len(directories):
        return {directory: class_names.index(directory) for directory in directories}
    if known or len(class_names) < len(directories):
        raise InvalidDataset("class_names must name every class folder, or rename all of them in sorted order.")
    return {directory: index for index, directory in enumerate(directories)}


def _read_split(
    archive: Archive, files: Sequence[_File], label_of: dict[str, int], first: Images, limits: Limits
) -> Split:
    images = np.empty((len(files), *first.shape), dtype=np.uint8)
    for row, file in enumerate(files):
        image = _decode(archive, file.entry, limits)
        if image.shape != first.shape:
            raise InvalidDataset(
                f"All images must be {_described(first)} like the first one; at least one differs. "
                "Resize or convert them."
            )
        images[row] = image
    return Split(images, np.array([label_of[file.parts[1]] for file in files], dtype=np.int64))


def _described(image: Images) -> str:
    height, width, channels = image.shape
    return f"{width} by {height} pixels, {'grey' if channels == 1 else 'RGB'},"


def _check_decoded_size(first: Images, count: int, limits: Limits) -> None:
    """Before memory for all images is asked for."""
    if max(first.shape[:2]) > MAXIMUM_SIDE:
        raise InvalidDataset(f"Images may measure at most {MAXIMUM_SIDE} pixels on each side. Resize them.")
    if first.size * count > limits.uncompressed_bytes:
        raise InvalidDataset(f"The images unpack to more than the {limits.uncompressed_bytes} bytes accepted.")


def _decode(archive: Archive, entry: zipfile.ZipInfo, limits: Limits) -> Images:
    """uint8 (height, width, channels) of one file."""
    data = archive.head(entry, entry.file_size)
    with (
        refusing("At least one image cannot be decoded. Save each as a complete PNG or JPEG file."),
        Image.open(io.BytesIO(data), formats=_FORMATS) as image,
    ):
        _check_image(image, data, limits)
        pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)


def _check_image(image: Image.Image, data: bytes, limits: Limits) -> None:
    """What the header says, before anything is decoded."""
    if image.width * image.height > limits.image_pixels:
        raise InvalidDataset(f"At least one image has more than {limits.image_pixels} pixels. Resize the images.")
    # Pillow hands out 16-bit RGB as 8-bit, without a word.
    wrong_depth = image.format == "PNG" and data[_PNG_BIT_DEPTH] != 8
    if image.mode not in _MODES or wrong_depth or "transparency" in image.info:
        raise InvalidDataset(
            "Images must be 8-bit grey or RGB, without palette, transparency or animation. Convert and save them again."
        )
    # A JPEG with several pictures counts as animated, too.
    if getattr(image, "is_animated", False):
        raise InvalidDataset("At least one image is animated. Save a single frame of each.")
