"""Which entries of an archive or a folder are images, and which of the others may be left aside.

Notes, licences and what desktops leave behind are ignored and counted. Tables and archives beside images are never
ignored: they may say something of the images.

The split of an image is the folder `train`, `test` or `val` that it lies in, spelt in any case. A folder of such a name
beside other folders may be a class as well (a "train" beside a "bus"): then the upload is refused, unless its owner
names the classes.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from datalens_service.data.dataset import Images
from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.data.preparation import kinds
from datalens_service.data.readers.base import ClassNames, ReadImages
from datalens_service.data.reading_choices import ReadingChoices
from datalens_service.data.untrusted.entries import Entry
from datalens_service.data.untrusted.images import (
    HEAD_BYTES,
    STRICT,
    DecodedImages,
    PictureDecoder,
    decode_all,
    is_image_name,
)
from datalens_service.data.untrusted.limits import Limits
from datalens_service.data.untrusted.source import Source
from datalens_service.data.untrusted.validation_errors import BadFile, UnusableFiles, ValidationErrors
from datalens_service.errors import InvalidDataset

PREPARE: Final = (
    "This kind of image is read only if one size is named for all: `datalens prepare` on your machine, or "
    "⟦prepare_size⟧ at the upload."
)
METADATA: Final = ("metadata.csv", "metadata.jsonl")

_LOOKED_AT: Final = 16
_LEFT_BEHIND: Final = ("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "classes.json", "card.json", "sha256sums")
_NOTES: Final = re.compile(
    r"(readme|license|licence|copying|notice|citation|changelog|authors|contributing|datasheet|croissant)(\W.*)?"
    r"|.*\.(txt|md|rst|pdf|rtf|docx?|odt|html?|log|url|lnk|webloc|sha256|md5|cff)",
    re.IGNORECASE | re.DOTALL,
)
_TABLES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".xlsx", ".xls", ".ods", ".xml", ".yaml", ".yml")


class ImageEntry(NamedTuple):
    """An image file and where it belongs."""

    parts: tuple[str, ...]
    entry: Entry


def holds_images(source: Source) -> bool:
    """Whether the archive has images in it that can be read as they are asked for; some of them may be damaged."""
    return _holds(source, source.decoder.suffixes, source.decoder.recognises)


def preparable_names(source: Source) -> list[str]:
    """Names of images that could only be read if the upload named a size for all."""
    if source.decoder is not STRICT or not _holds(source, kinds.SUFFIXES, kinds.is_preparable):
        return []
    return [entry.filename for entry in _named(source, kinds.SUFFIXES)]


def is_ignored(name: str) -> bool:
    """Whether an entry says nothing of images: hidden, left behind by a desktop or an editor, a note or a licence."""
    components = name.split("/")
    last = components[-1].casefold()
    return (
        any(component.startswith((".", "__MACOSX")) for component in components)
        or last in _LEFT_BEHIND
        or (_NOTES.fullmatch(last) is not None and not is_image_name(last, kinds.SUFFIXES))
    )


def is_metadata(name: str) -> bool:
    """Whether a file is a table that says something of the images beside it."""
    return name.rpartition("/")[2].casefold() in METADATA and not is_ignored(name)


def image_entries(source: Source) -> list[ImageEntry]:
    """All images by name, without a folder that everything lies in. What is ignored is noted.

    Raises:
        UnusableFiles: Naming all that are no images, or too large for one.
    """
    ignored = [entry.filename for entry in source.entries if is_ignored(entry.filename)]
    entries = [e for e in source.entries if not (is_ignored(e.filename) or is_metadata(e.filename))]
    _check_entries(entries, source)
    source.notices.add(NoticeCode.IGNORED_FILES, sorted(ignored))
    files = [ImageEntry(tuple(entry.filename.split("/")), entry) for entry in entries]
    return sorted(files, key=lambda file: file.parts)


def decode_entries(source: Source, files: Sequence[ImageEntry], choices: ReadingChoices) -> ReadImages:
    """Decodes images of a split, in order, once it is asked to."""

    def read(first: Images | None) -> DecodedImages:
        contents = ((file.entry.filename, partial(source.head, file.entry, file.entry.file_size)) for file in files)
        return decode_all(
            contents, len(files), first, source.limits, source.notices, source.decoder, skip=choices.skip_unreadable
        )

    return read


def check_entry(entry: Entry, limits: Limits, decoder: PictureDecoder) -> None:
    """Refuse an entry by its name and declared size.

    Raises:
        InvalidDataset: It is not named like an image, or would unpack to too much.
    """
    if not is_image_name(entry.filename, decoder.suffixes):
        raise InvalidDataset(_foreign(entry.filename, decoder))
    ratio_cap = max(limits.image_ratio_free_bytes, limits.ratio * entry.compress_size)
    if entry.file_size > min(limits.image_file_bytes, ratio_cap):
        raise InvalidDataset("At least one image file is too large for what it holds. Save the images again as PNG.")


def _foreign(name: str, decoder: PictureDecoder) -> str:
    last = name.rpartition("/")[2].casefold()
    if last.endswith(_TABLES):
        return (
            "A table beside images is read if it is called metadata.csv or metadata.jsonl, and never ignored: its "
            "labels would be a second source beside the folders. Rename it to metadata.csv, or remove it."
        )
    if decoder is STRICT and last.endswith(kinds.SUFFIXES):
        return PREPARE
    if "." not in last:
        return (
            f"The name has no ending that says what it is. Images are {decoder.title}: add .png or .jpg, or remove it."
        )
    return f"Only {decoder.title} files are images here. Remove everything else, or archives of it unpacked."


def _check_entries(entries: Sequence[Entry], source: Source) -> None:
    errors = ValidationErrors()
    for entry in entries:
        try:
            check_entry(entry, source.limits, source.decoder)
            errors.good()
        except InvalidDataset as error:
            errors.bad(entry.filename, error.text)
    errors.raise_if_any()


def _holds(source: Source, suffixes: tuple[str, ...], recognises: Callable[[bytes], bool]) -> bool:
    images = islice(_named(source, suffixes), _LOOKED_AT)
    return any(recognises(source.head(entry, HEAD_BYTES)) for entry in images)


def _named(source: Source, suffixes: tuple[str, ...]) -> Iterator[Entry]:
    """Entries that are named like images and not ignored."""
    return (
        entry for entry in source.entries if is_image_name(entry.filename, suffixes) and not is_ignored(entry.filename)
    )


TRAIN: Final = "train"
TEST: Final = "test"
UNUSED: Final = "val"
LAYOUTS: Final = (
    "These layouts work: <class>/<image>; train/<class>/<image> and test/<class>/<image>; <class>/<person>/<image>; "
    "or images in any folders with a metadata.csv that has the columns file_name and label."
)

_SPLITS: Final = {
    "train": TRAIN, "training": TRAIN, "test": TEST, "testing": TEST,
    "val": UNUSED, "valid": UNUSED, "validation": UNUSED,
}  # fmt: skip


class SplitFiles(NamedTuple):
    """Images by split; their parts begin behind the folder of the split."""

    train: list[ImageEntry]
    test: list[ImageEntry]


def split_named(folder: str) -> str | None:
    """The split that a folder is called after."""
    return _SPLITS.get(folder.casefold())


def without_wrapper(files: list[ImageEntry], deepest: int) -> list[ImageEntry]:
    """Files without folders that everything lies in, as long as `deepest` folders or more remain above each file."""
    while (
        files and len({file.parts[0] for file in files}) == 1 and all(len(file.parts) > deepest + 1 for file in files)
    ):
        if split_named(files[0].parts[0]) is not None:
            break
        files = [ImageEntry(file.parts[1:], file.entry) for file in files]
    return files


def by_split(
    files: Sequence[ImageEntry], class_names: ClassNames | None, notices: Notices, *, labelled: bool = False
) -> SplitFiles:
    """Files of the training and the test split; those of a validation split are left out and noted.

    Args:
        files: Without a folder around all of them.
        class_names: As the owner names them; a folder of these is a class, whatever it is called.
        labelled: Whether a table says the labels, so that no folder is a class.

    Raises:
        UnusableFiles: Naming splits beside other folders.
        InvalidDataset: There is nothing to train on.
    """
    tops = {file.parts[0] for file in files if len(file.parts) > 1}
    splits = {top for top in tops if split_named(top) is not None and top not in (class_names or ())}
    if not splits:
        return SplitFiles(list(files), [])
    if not labelled:
        _check_alone(splits, {file.parts[0] for file in files})
    notices.add(NoticeCode.SPLITS_READ, sorted(top for top in splits if top != split_named(top)))
    found: dict[str, list[ImageEntry]] = {TRAIN: [], TEST: [], UNUSED: []}
    for file in files:
        inside = len(file.parts) > 1 and file.parts[0] in splits
        split = split_named(file.parts[0]) if inside else None
        found[split or TRAIN].append(ImageEntry(file.parts[inside:], file.entry))
    notices.add(NoticeCode.IGNORED_SPLIT, (file.entry.filename for file in found[UNUSED]))
    if not found[TRAIN]:
        raise InvalidDataset(f"There are no training images, only those of other splits. {LAYOUTS}")
    return SplitFiles(found[TRAIN], found[TEST])


def _check_alone(splits: set[str], tops: set[str]) -> None:
    if tops - splits:
        reason = (
            "A folder with the name of a split lies beside others: is it a class or a split? If it is a split, put all "
            "classes into train/ and test/; if it is a class, declare it with all others in ⟦class_names⟧, or rename "
            f"its folder. {LAYOUTS}"
        )
        raise UnusableFiles([BadFile(name=f"{name}/", reason=reason) for name in sorted(splits)], len(tops))
