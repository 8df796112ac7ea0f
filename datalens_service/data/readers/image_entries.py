"""Which entries of an archive are images, and which split each belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from datalens_service.data.dataset import Images
from datalens_service.data.notices import NoticeCode
from datalens_service.data.preparation import kinds
from datalens_service.data.readers.metadata import is_metadata, normal
from datalens_service.data.untrusted.entries import Entry
from datalens_service.data.untrusted.images import HEAD_BYTES, STRICT, PictureDecoder, decode_all, is_image_name
from datalens_service.data.untrusted.limits import Limits
from datalens_service.data.untrusted.source import Source
from datalens_service.data.untrusted.validation_errors import ValidationErrors
from datalens_service.errors import InvalidDataset

TRAIN: Final = "train"
TEST: Final = "test"
UNUSED: Final = ("val", "valid", "validation")
SPLITS: Final = (TRAIN, TEST, *UNUSED)
PREPARE: Final = (
    "This kind of image is read only if one size is named for all: datalens prepare on your machine, or "
    "prepare_size at the upload."
)

_LOOKED_AT = 16
_IGNORED_FILES = ("thumbs.db", "desktop.ini", "classes.json", "card.json")


class ImageEntry(NamedTuple):
    """An image file and where it belongs."""

    parts: tuple[str, ...]
    entry: Entry


def holds_images(source: Source) -> bool:
    """Whether the archive has images in it; some of them may be damaged."""
    return _holds(source, source.decoder.suffixes, source.decoder.recognises)


def preparable_names(source: Source) -> list[str]:
    """Names of images that could only be read if the upload named a size for all."""
    if source.decoder is not STRICT or not _holds(source, kinds.SUFFIXES, kinds.is_preparable):
        return []
    return [entry.filename for entry in _named(source, kinds.SUFFIXES)]


def is_ignored(name: str) -> bool:
    """Whether an entry is one of those that desktops and our own export leave behind, or a table of metadata."""
    components = name.split("/")
    hidden = any(component.startswith(".") for component in components)
    return hidden or components[0] == "__MACOSX" or components[-1].casefold() in _IGNORED_FILES or is_metadata(name)


def image_entries(source: Source) -> list[ImageEntry]:
    """All images by name, without a folder that everything lies in. Hidden images are noted.

    Raises:
        UnusableFiles: Naming all that are no images, or too large for one.
    """
    entries = [entry for entry in source.entries if not is_ignored(entry.filename)]
    _check_entries(entries, source)
    source.notices.add(NoticeCode.IGNORED_FILES, sorted(filter(_is_hidden_image, _names(source))))
    # macOS stores names in decomposed form; the same class must have the same name everywhere.
    files = [ImageEntry(tuple(normal(entry.filename).split("/")), entry) for entry in entries]
    return _without_wrapper(sorted(files, key=lambda file: file.parts))


def in_known_splits(source: Source, files: Sequence[ImageEntry]) -> list[ImageEntry]:
    """Files of the training and the test split, by the first part of their name; others are noted."""
    source.notices.add(NoticeCode.IGNORED_SPLIT, (file.entry.filename for file in files if split_of(file) in UNUSED))
    return [file for file in files if split_of(file) not in UNUSED]


def split_of(file: ImageEntry) -> str:
    """Split that the first folder names; without one, a file is for training."""
    return file.parts[0] if len(file.parts) > 1 and file.parts[0] in SPLITS else TRAIN


def read_images(source: Source, files: Sequence[ImageEntry], first: Images | None) -> Images:
    """Decode images of a split, in order.

    Args:
        source: Where they are.
        files: Which.
        first: An image that all must be like; None takes the first of these.

    Raises:
        UnusableFiles: Naming all that cannot be used.
    """
    contents = ((file.entry.filename, _reading(source, file.entry)) for file in files)
    return decode_all(contents, len(files), first, source.limits, source.notices, source.decoder)


def check_entry(entry: Entry, limits: Limits, decoder: PictureDecoder) -> None:
    """Refuse an entry by its name and declared size.

    Raises:
        InvalidDataset: It is not named like an image, or would unpack to too much.
    """
    if not _is_image(entry, decoder):
        raise InvalidDataset(f"Only {decoder.title} files in class folders are accepted. Remove everything else.")
    ratio_cap = max(limits.image_ratio_free_bytes, limits.ratio * entry.compress_size)
    if entry.file_size > min(limits.image_file_bytes, ratio_cap):
        raise InvalidDataset("At least one image file is too large for what it holds. Save the images again as PNG.")


def _check_entries(entries: Sequence[Entry], source: Source) -> None:
    errors = ValidationErrors()
    for entry in entries:
        try:
            check_entry(entry, source.limits, source.decoder)
            errors.good()
        except InvalidDataset as error:
            other_kind = source.decoder is STRICT and is_image_name(entry.filename, kinds.SUFFIXES)
            errors.bad(entry.filename, PREPARE if other_kind and not _is_image(entry, STRICT) else error.detail)
    errors.raise_if_any()


def _holds(source: Source, suffixes: tuple[str, ...], recognises: Callable[[bytes], bool]) -> bool:
    images = islice(_named(source, suffixes), _LOOKED_AT)
    return any(recognises(source.head(entry, HEAD_BYTES)) for entry in images)


def _named(source: Source, suffixes: tuple[str, ...]) -> Iterator[Entry]:
    """Entries that are named like images and not ignored."""
    return (
        entry for entry in source.entries if is_image_name(entry.filename, suffixes) and not is_ignored(entry.filename)
    )


def _is_image(entry: Entry, decoder: PictureDecoder) -> bool:
    return is_image_name(entry.filename, decoder.suffixes)


def _names(source: Source) -> list[str]:
    return [entry.filename for entry in source.entries]


def _is_hidden_image(name: str) -> bool:
    """An image that is ignored for its name or folder, and is not what macOS puts beside every file."""
    folder, _, last = name.rpartition("/")
    return is_image_name(name) and is_ignored(name) and not last.startswith("._") and "__MACOSX" not in folder


def _reading(source: Source, entry: Entry) -> Callable[[], bytes]:
    return partial(source.head, entry, entry.file_size)


def _without_wrapper(files: list[ImageEntry]) -> list[ImageEntry]:
    """Drop a folder that everything lies in."""
    while files and all(len(file.parts) > 2 for file in files) and len({file.parts[0] for file in files}) == 1:
        if files[0].parts[0] in SPLITS:
            break
        files = [ImageEntry(file.parts[1:], file.entry) for file in files]
    return files
