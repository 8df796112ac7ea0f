"""Which entries of an archive are images, and which split each belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from datalens_service.data.dataset import Images
from datalens_service.data.entries import Entry
from datalens_service.data.images import MAGIC, decode_all, is_image_name
from datalens_service.data.limits import Limits
from datalens_service.data.metadata import is_metadata, normal
from datalens_service.data.source import Source
from datalens_service.errors import InvalidDataset

TRAIN: Final = "train"
TEST: Final = "test"
SPLITS: Final = (TRAIN, TEST, "val", "valid", "validation")

_LOOKED_AT = 16
_IGNORED_FILES = ("thumbs.db", "desktop.ini", "classes.json", "card.json")


class ImageEntry(NamedTuple):
    """An image file and where it belongs."""

    parts: tuple[str, ...]
    entry: Entry


def holds_images(source: Source) -> bool:
    """Whether the archive has a PNG or JPEG in it; some of them may be damaged."""
    images = (entry for entry in source.entries if is_image_name(entry.filename) and not is_ignored(entry.filename))
    return any(source.head(entry, len(MAGIC[0])).startswith(MAGIC) for entry in islice(images, _LOOKED_AT))


def is_ignored(name: str) -> bool:
    """Whether an entry is one of those that desktops and our own export leave behind, or a table of metadata."""
    components = name.split("/")
    hidden = any(component.startswith(".") for component in components)
    return hidden or components[0] == "__MACOSX" or components[-1].casefold() in _IGNORED_FILES or is_metadata(name)


def image_entries(entries: Iterable[Entry], limits: Limits) -> list[ImageEntry]:
    """All images by name, without a folder that everything lies in.

    Raises:
        InvalidDataset: Something is not an image, or too large for one.
    """
    entries = [entry for entry in entries if not is_ignored(entry.filename)]
    for entry in entries:
        check_entry(entry, limits)
    # macOS stores names in decomposed form; the same class must have the same name everywhere.
    files = [ImageEntry(tuple(normal(entry.filename).split("/")), entry) for entry in entries]
    return _without_wrapper(sorted(files, key=lambda file: file.parts))


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
    return decode_all(contents, len(files), first, source.limits)


def check_entry(entry: Entry, limits: Limits) -> None:
    """Refuse an entry by its name and declared size.

    Raises:
        InvalidDataset: It is not named like an image, or would unpack to too much.
    """
    if not is_image_name(entry.filename):
        raise InvalidDataset("Only PNG and JPEG files in class folders are accepted. Remove everything else.")
    ratio_cap = max(limits.image_ratio_free_bytes, limits.ratio * entry.compress_size)
    if entry.file_size > min(limits.image_file_bytes, ratio_cap):
        raise InvalidDataset("At least one image file is too large for what it holds. Save the images again as PNG.")


def _reading(source: Source, entry: Entry) -> Callable[[], bytes]:
    return partial(source.head, entry, entry.file_size)


def _without_wrapper(files: list[ImageEntry]) -> list[ImageEntry]:
    """Drop a folder that everything lies in."""
    while files and all(len(file.parts) > 2 for file in files) and len({file.parts[0] for file in files}) == 1:
        if files[0].parts[0] in SPLITS:
            break
        files = [ImageEntry(file.parts[1:], file.entry) for file in files]
    return files
