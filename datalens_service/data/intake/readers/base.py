"""What every reader hands out: an index of records whose pixels nobody has decoded yet."""

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
    """What the labels of a column are."""

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
    """Who or what the records of a split belong to, whether that is to be protected or not.

    Attributes:
        names: One per record, None where nothing says it; None if it is said of no record.
        word: What one group is.
        unit_ids: int64 (n,), in the place of names: identities of units that were made of them before.
        group_ids: int64 (n,), likewise, identities of groups.
    """

    names: tuple[str | None, ...] | None = None
    word: str = "group"
    unit_ids: UnitIds | None = None
    group_ids: GroupIds | None = None

    @property
    def are_known(self) -> bool:
        """Whether something is said of a record."""
        return self.names is not None or self.group_ids is not None

    @classmethod
    def from_names(cls, names: Iterable[str | None], word: str = "group") -> Self:
        """Return the groups of these names; none if nothing is said of any record."""
        listed = tuple(names)
        return cls(listed, word) if any(name is not None for name in listed) else cls()


@dataclass(frozen=True)
class RecordIndex:
    """Records of one split: labels, and how to get their groups and images.

    Attributes:
        called: What the split's labels are called in a refusal.
        read_images: Decodes the images, in the same order.
        read_groups: Says who or what each record belongs to. InvalidDataset: of the training split, if groups are to be
            units and a record has none.
        names: Names of the files that the records are read from, in the same order; None if they have none.
    """

    called: str
    labels: LabelColumn
    read_images: ReadImages
    read_groups: Callable[[], Groups] = Groups
    names: tuple[str, ...] | None = None


class UploadIndex(NamedTuple):
    """What a format says of an upload before a pixel is decoded.

    Attributes:
        empty_classes: Folders of classes in which there is no image.
        preparation: How the file says that its images were prepared.
        persons_as_classes: Classes whose name is that of a person, by what the files themselves say.
    """

    train: RecordIndex
    test: RecordIndex | None
    empty_classes: tuple[str, ...] = ()
    preparation: PrepareSettings | None = None
    persons_as_classes: tuple[str, ...] = ()


Recognise = Callable[[Source, ReadingChoices], bool]
"""Whether contents, not the name, look like one format."""

BuildIndex = Callable[[Source, ReadingChoices], UploadIndex]
"""Labels and groups of all records, and how to decode their images; InvalidDataset says what to change."""


@dataclass(frozen=True)
class Reader:
    """One upload format.

    Attributes:
        name: Key in `READERS`, and `format` of the upload in the REST API.
        title: A noun with its article and container; the sentence that refuses unknown files and the pages show it.
        layout: How a file of this format is built, in Markdown, for the table of the documentation.
        suffixes: What such files are usually called, with the dot; contents decide, a browser's file dialog asks.
        has_label_column: Whether labels stand in a column that an owner can name.
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
