"""Which split an image belongs to: the folder `train`, `test` or `val` that it lies in, spelt in any case.

A folder of such a name beside other folders may be a class as well (a "train" beside a "bus"): then the upload is
refused, unless its owner names the classes.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.data.readers.base import ClassNames
from datalens_service.data.readers.image_entries import ImageEntry
from datalens_service.data.untrusted.validation_errors import BadFile, UnusableFiles
from datalens_service.errors import InvalidDataset

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
