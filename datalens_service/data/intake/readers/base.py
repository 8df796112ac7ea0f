"""The interface of readers: an index of records whose pixels nobody has decoded yet."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import GroupIds, Images, UnitIds
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.images import DecodedImages
from datalens_service.data.intake.untrusted.source import Source
from datalens_service.data.preparation_settings import PrepareSettings

PRIVATE_READS = ("reading the upload",)

ClassNames = tuple[str, ...]

CLASS_NAME_LENGTH = 100


class LabelKind(StrEnum):
    """The kind of the labels in a column."""

    NUMBER = "integers"
    WORD = "words"
    FLAG = "true or false"
    TEXT = "text"


class LabelColumn(NamedTuple):
    """Labels of one split, in order.

    Attributes:
        words: The labels as text; whole numbers in decimal digits.
        names: Names of the classes by number, if the file declares them.
    """

    kind: LabelKind
    words: tuple[str, ...]
    names: ClassNames | None = None


ReadImages = Callable[[Images | None], DecodedImages]
"""Decodes the images of a split; its argument is an image that all must be like, None takes the first of them."""


class Groups(NamedTuple):
    """The groups of the records of a split, be they protected or not.

    Attributes:
        names: One per record, None where it is not stated; None if it is stated of no record.
        word: Word for one group.
        unit_ids: int64 (n,), in the place of names: identities of units that were made of them before.
        group_ids: int64 (n,), likewise, identities of groups.
    """

    names: tuple[str | None, ...] | None = None
    word: str = "group"
    unit_ids: UnitIds | None = None
    group_ids: GroupIds | None = None

    @property
    def are_known(self) -> bool:
        """Tell whether the group of any record is stated."""
        return self.names is not None or self.group_ids is not None

    @classmethod
    def from_names(cls, names: Iterable[str | None], word: str = "group") -> Self:
        """Return the groups of these names; none if no name is stated."""
        listed = tuple(names)
        return cls(listed, word) if any(name is not None for name in listed) else cls()


@dataclass(frozen=True)
class RecordIndex:
    """Records of one split: labels, and functions that read their groups and images.

    Attributes:
        called: Name of the split's labels in a refusal.
        read_images: Decodes the images, in the same order.
        read_groups: Reads the group of each record. It raises InvalidDataset for the training split, if groups are to
            be units and a record has none.
        names: Names of the files that the records are read from, in the same order; None if they have none.
    """

    called: str
    labels: LabelColumn
    read_images: ReadImages
    read_groups: Callable[[], Groups] = Groups
    names: tuple[str, ...] | None = None


class UploadIndex(NamedTuple):
    """The index of an upload, before a pixel is decoded.

    Attributes:
        empty_classes: Folders of classes in which there is no image.
        preparation: The preparation of its images by the file's own words.
        persons_as_classes: Classes whose name is that of a person, by the files themselves.
    """

    train: RecordIndex
    test: RecordIndex | None
    empty_classes: tuple[str, ...] = ()
    preparation: PrepareSettings | None = None
    persons_as_classes: tuple[str, ...] = ()


Recognise = Callable[[Source, ReadingChoices], bool]
"""Tells whether contents, not the name, look like one format."""

BuildIndex = Callable[[Source, ReadingChoices], UploadIndex]
"""Reads labels and groups of all records, and returns how to decode their images; InvalidDataset says what to change.
"""


@dataclass(frozen=True)
class Reader:
    """One upload format.

    Attributes:
        name: Key in `READERS`, and `format` of the upload in the REST API.
        title: A noun with its article and container; the sentence that refuses unknown files and the pages show it.
        layout: Structure of a file of this format, in Markdown, for the table of the documentation.
        suffixes: Usual endings of such files, with the dot; contents decide, a browser's file dialog uses them.
        has_label_column: True if labels are in a column that an owner can name.
    """

    name: str
    title: str
    layout: str
    suffixes: tuple[str, ...]
    recognises: Recognise
    index: BuildIndex
    has_label_column: bool = False


def check_class_names(class_names: ClassNames) -> None:
    """Refuse names that cannot be shown or told apart.

    Raises:
        InvalidDataset: A name is empty, repeated, longer than 100 characters or not printable.
    """
    if len(set(class_names)) != len(class_names):
        raise InvalidDataset("Class names must differ from each other.")
    for name in class_names:
        if not (0 < len(name) <= CLASS_NAME_LENGTH and name.isprintable() and name.strip()):
            raise InvalidDataset(f"Class names must be 1 to {CLASS_NAME_LENGTH} printable characters.")
