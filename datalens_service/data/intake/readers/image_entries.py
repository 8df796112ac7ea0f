"""The entries of an archive or a folder that are images, and those that may be ignored.

Notes, licences and leftovers of desktops are ignored and counted. Tables and archives beside images are never
ignored: they may describe the images.

The split of an image is the folder `train`, `test` or `val` that it lies in, spelt in any case. A folder of such a name
beside other folders may be a class as well (a "train" beside a "bus"): then the upload is refused, unless its owner
names the classes.
"""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import Images
from datalens_service.data.intake.readers.base import ClassNames, ReadImages
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.entries import FileEntry, check_names_differ
from datalens_service.data.intake.untrusted.file_kinds import HEAD_BYTES, FileKind, Use, find_kind, is_image_name
from datalens_service.data.intake.untrusted.images import DecodedImages, decode_all
from datalens_service.data.intake.untrusted.source import Source
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles, ValidationErrors
from datalens_service.data.notices import NoticeCode, Notices

METADATA: Final = ("metadata.csv", "metadata.jsonl")

ARCHIVE_BESIDE: Final = "It holds another archive, {}. Unpack that one, and upload it or its images."
_LEFT_BEHIND: Final = (
    "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "dicomdir", "classes.json", "card.json", "sha256sums",
)  # fmt: skip
_NOTES: Final = re.compile(
    r"(readme|license|licence|copying|notice|citation|changelog|authors|contributing|datasheet|croissant)(\W.*)?"
    r"|.*\.(txt|md|rst|pdf|rtf|docx?|odt|html?|log|url|lnk|webloc|sha256|md5|cff)",
    re.IGNORECASE | re.DOTALL,
)
_TABLES: Final = (
    ".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".xlsx", ".xls", ".ods", ".xml", ".yaml", ".yml",
    ".parquet", ".feather",
)  # fmt: skip


class ImageEntry(NamedTuple):
    """An image file and where it belongs."""

    parts: tuple[str, ...]
    entry: FileEntry


def holds_images(source: Source) -> bool:
    """Tell whether the archive has images of kinds that the choices allow to read; some of them may be damaged."""
    entries = [entry for entry in source.entries if not is_ignored(entry.filename)]
    # Files named like images come first, since nearly always the first of them decides.
    named = sorted(entries, key=lambda entry: not is_image_name(entry.filename))
    return any(source.decoder.reads(kind_in(source, entry)) for entry in named)


def kind_in(source: Source, entry: FileEntry) -> FileKind | None:
    """Find the kind of a file of an archive."""
    return find_kind(source.head(entry, HEAD_BYTES))


def is_ignored(name: str) -> bool:
    """Tell whether an entry is hidden, left behind by a desktop or an editor, a note or a licence."""
    components = name.split("/")
    last = components[-1].casefold()
    return (
        any(component.startswith((".", "__MACOSX")) for component in components)
        or last in _LEFT_BEHIND
        or (_NOTES.fullmatch(last) is not None and not is_image_name(last))
    )


def is_metadata(name: str) -> bool:
    """Tell whether a file is a table that describes the images beside it."""
    return name.rpartition("/")[2].casefold() in METADATA and not is_ignored(name)


def image_entries(source: Source, choices: ReadingChoices) -> list[ImageEntry]:
    """List all images by name, without a folder around them all, and note the files that are left out.

    Raises:
        UnusableFiles: Names all files that are no images, or too large for one.
    """
    ignored = [entry.filename for entry in source.entries if is_ignored(entry.filename)]
    entries = [e for e in source.entries if not (is_ignored(e.filename) or is_metadata(e.filename))]
    if any(is_metadata(entry.filename) for entry in source.entries):
        # A table's lines name images in any case.
        check_names_differ(entry.filename for entry in entries)
    entries = _usable(entries, source, skip=choices.skip_unreadable)
    source.notices.add(NoticeCode.IGNORED_FILES, sorted(ignored))
    files = [ImageEntry(tuple(entry.filename.split("/")), entry) for entry in entries]
    return sorted(files, key=lambda file: file.parts)


def names_of(files: Sequence[ImageEntry]) -> tuple[str, ...]:
    """Return the names of the files, without folders."""
    return tuple(file.parts[-1] for file in files)


def decode_entries(source: Source, files: Sequence[ImageEntry], choices: ReadingChoices) -> ReadImages:
    """Return a function that decodes the images of a split, in order."""

    def read(first: Images | None) -> DecodedImages:
        contents = ((file.entry.filename, partial(source.head, file.entry, file.entry.file_size)) for file in files)
        return decode_all(
            contents, len(files), first, source.limits, source.notices, source.decoder, skip=choices.skip_unreadable
        )

    return read


class BesideImages(InvalidDataset):
    """A table or an archive beside images: it may describe them, so it is never left out."""


def check_entry(entry: FileEntry, source: Source) -> None:
    """Refuse a file of an archive that is no image, by its first bytes, or by its name if they do not tell.

    Raises:
        BesideImages: It is a table or an archive.
        InvalidDataset: It is something else, or would unpack to too much.
    """
    kind = kind_in(source, entry)
    if not (kind and kind.is_picture):
        _check_name(entry.filename, kind, source.decoder.title)
    source.decoder.check_kind(kind)
    limits = source.limits
    if entry.file_size > limits.image_file_bytes:
        raise InvalidDataset(f"The file has more than the {limits.image_file_bytes:,} bytes accepted of one image.")
    if entry.file_size > max(limits.image_ratio_free_bytes, limits.ratio * entry.compress_size):
        raise InvalidDataset("At least one image file is too large for what it holds. Save the images again as PNG.")


def _check_name(name: str, kind: FileKind | None, title: str) -> None:
    """Refuse a file that neither its first bytes nor its name make a picture; bytes that tell its kind go on."""
    last = name.rpartition("/")[2].casefold()
    if last.endswith(_TABLES):
        raise BesideImages(
            "A table beside images is read if it is called metadata.csv or metadata.jsonl, and never ignored: its "
            "labels would be a second source beside the folders. Rename it to metadata.csv, or remove it."
        )
    if kind is not None and kind.use is Use.ARCHIVE:
        raise BesideImages(ARCHIVE_BESIDE.format(kind.name))
    if kind is not None or is_image_name(last):
        return
    if "." not in last:
        raise InvalidDataset(f"Neither its name nor its first bytes say what it is. Images are {title}: remove it.")
    raise InvalidDataset(f"Only {title} files are images here. Remove everything else.")


def _usable(entries: Iterable[FileEntry], source: Source, *, skip: bool) -> list[FileEntry]:
    errors, unreadable, usable = ValidationErrors(), ValidationErrors(), list[FileEntry]()
    for entry in entries:
        try:
            check_entry(entry, source)
        except BesideImages as error:
            errors.bad(entry.filename, error.text)
        except InvalidDataset as error:
            unreadable.bad(entry.filename, error.text)
        else:
            errors.good()
            usable.append(entry)
    if skip and usable:
        source.notices.add(NoticeCode.UNREADABLE_LEFT_OUT, (file.name for file in unreadable.bad_files))
    else:
        errors.add(unreadable)
    errors.raise_if_any()
    return usable


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
    return _SPLITS.get(folder.casefold())


def without_wrapper(files: list[ImageEntry], deepest: int) -> list[ImageEntry]:
    """Strip folders that everything lies in, as long as `deepest` folders or more remain above each file."""
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
    """Divide files between the training and the test split; those of a validation split are left out and noted.

    Args:
        files: Without a folder around all of them.
        class_names: Names that the owner gives; a folder of these is a class, even if it is named like a split.
        labelled: True if a table has the labels, so that no folder is a class.

    Raises:
        UnusableFiles: Names splits beside other folders.
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
