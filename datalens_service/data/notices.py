"""Notices about an upload that was read in a way its owner may not expect. Private: they depend on the records.

A notice is a stable code, a count and a few names; the sentence belongs to the code. Readers collect notices in
`Source.notices` while they read.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, computed_field

from datalens_service.base.wording import speak

EXAMPLES: Final = 5
"""Most examples of one notice; all cases are counted."""

_EXAMPLE_LENGTH: Final = 200


class NoticeCode(StrEnum):
    """The subject of a notice; `MESSAGES` says what to do."""

    IGNORED_SPLIT = "ignored_split"
    IGNORED_FILES = "ignored_files"
    IGNORED_ARRAYS = "ignored_arrays"
    UNLABELLED_TEST = "unlabelled_test"
    UNREADABLE_LEFT_OUT = "unreadable_left_out"
    MISSING_FILES = "missing_files"
    PERSON_COLUMN = "person_column"
    PERSONS_IN_BOTH = "persons_in_both"
    TEST_PERSONS_UNKNOWN = "test_persons_unknown"
    PERSONS_IN_NAMES = "persons_in_names"
    KEYS_JOINED = "keys_joined"
    KEYS_ALIKE = "keys_alike"
    PLACEHOLDER_KEYS = "placeholder_keys"
    UNUSED_COLUMNS = "unused_columns"
    SPLITS_READ = "splits_read"
    BACKSLASHES = "backslashes"
    ORIENTATION_APPLIED = "orientation_applied"
    RESIZED = "resized"
    PROPORTIONS_CHANGED = "proportions_changed"
    CHANNELS_CONVERTED = "channels_converted"
    TRANSPARENCY_REMOVED = "transparency_removed"
    WINDOW_APPLIED = "window_applied"
    FRAME_SELECTED = "frame_selected"
    CHANNELS_FIRST = "channels_first"
    FLAT_IMAGES = "flat_images"
    FLOATS_TO_255 = "floats_to_255"
    CLASSES_RENAMED = "classes_renamed"
    LABELS_RENUMBERED = "labels_renumbered"
    SIMILAR_CLASSES = "similar_classes"
    EMPTY_CLASSES = "empty_classes"
    SINGLE_IMAGE_CLASSES = "single_image_classes"
    IMBALANCED_CLASSES = "imbalanced_classes"
    CONFLICTING_LABELS = "conflicting_labels"
    TEST_IN_TRAIN = "test_in_train"
    NEARLY_BLACK = "nearly_black"
    CONSTANT_IMAGES = "constant_images"
    CONSTANT_IMAGES_LEFT_OUT = "constant_images_left_out"
    REPEATED_IMAGES = "repeated_images"
    SHARES_RECORDS = "shares_records"
    SHARES_CONSTANT_IMAGES = "shares_constant_images"


MESSAGES: Final[dict[NoticeCode, str]] = {
    NoticeCode.IGNORED_SPLIT: "Files of a validation split were ignored. To train on them, move them to the training "
    "split; to measure on them, make them the test split.",
    NoticeCode.IGNORED_FILES: "Files were ignored: hidden ones (a name with a leading dot), what desktops leave "
    "behind, notes, licences, or others of no use to the format. Rename a file or folder that should be read.",
    NoticeCode.IGNORED_ARRAYS: "Arrays of the NPZ were ignored. Append val_images and val_labels to the training "
    "arrays if they should be trained on.",
    NoticeCode.UNLABELLED_TEST: "The test split has no labels: all of them are missing or negative. It was left out, "
    "and nothing is measured on it. Add a test split with labels.",
    NoticeCode.UNREADABLE_LEFT_OUT: "Files were left out, as you asked: they cannot be read as images, or have no "
    "label.",
    NoticeCode.MISSING_FILES: "Lines of the metadata name images that are not there. Add the images, or remove the "
    "lines.",
    NoticeCode.PERSON_COLUMN: "Columns look like keys of persons, and are not used as the unit that is protected. "
    "Rename the right one to patient or group, or name it in ⟦group_column⟧, so that the promise is about persons.",
    NoticeCode.PERSONS_IN_BOTH: "Persons (or whatever else the upload groups images by) have training images and test "
    "images. A model that has learned from a person does too well on that person's test images, so accuracy, fidelity "
    "and attacks leave these test images out. Put all images of one person into one split.",
    NoticeCode.TEST_PERSONS_UNKNOWN: "The upload names the persons of training images, but not of these test images. "
    "If a person is in both splits, figures measured on them are too good. Name the persons of test images, too.",
    NoticeCode.PERSONS_IN_NAMES: "Names of several files may name the same person; those with most images come first. "
    "Each image is protected by itself, and not the person. If these are persons, add a metadata.csv with the columns "
    "file_name and patient (to a table a column patient, to an NPZ an array groups), and declare ⟦records_per_unit⟧.",
    NoticeCode.KEYS_JOINED: "Keys of persons differ only in upper and lower case or in spaces, and were read as one "
    "person. If they are different persons, give them keys that differ in more.",
    NoticeCode.KEYS_ALIKE: "Keys of persons differ only in punctuation or leading zeros, and were read as different "
    "persons. If they are one person, write the key in one way, so that this person is protected as a whole.",
    NoticeCode.PLACEHOLDER_KEYS: "Keys are placeholders, as in anonymised exports. All training images of one such key "
    "count as one person, who may have other images under another key. Name the persons.",
    NoticeCode.UNUSED_COLUMNS: "Columns of the metadata are not used. Nothing of them is kept.",
    NoticeCode.SPLITS_READ: "Folders were read as splits: train or training, test or testing, val or validation. "
    "Rename one that is a class.",
    NoticeCode.BACKSLASHES: "Names have backslashes between folders and were read with slashes.",
    NoticeCode.ORIENTATION_APPLIED: "Images were turned as their EXIF orientation says.",
    NoticeCode.RESIZED: "Images had another size and were brought to the one you chose.",
    NoticeCode.PROPORTIONS_CHANGED: "Images have other proportions than the size you chose, so what they show was "
    "stretched. Set ⟦prepare_fit⟧ to crop, or choose a size of their proportions.",
    NoticeCode.CHANNELS_CONVERTED: "Images had other channels and were converted: to those that you chose in "
    "⟦prepare_colour⟧, or to colour, because other images are in colour.",
    NoticeCode.TRANSPARENCY_REMOVED: "Images were partly transparent and were laid on white.",
    NoticeCode.WINDOW_APPLIED: "Images had more than 8 bits; the values of a window became 0 to 255.",
    NoticeCode.FRAME_SELECTED: "Files had several frames and one was read: the first, or the one you named.",
    NoticeCode.CHANNELS_FIRST: "An array of images has its channels before height and width, and was read that way.",
    NoticeCode.FLAT_IMAGES: "Images are rows of numbers and were read as squares of grey pixels.",
    NoticeCode.FLOATS_TO_255: "Images are floats above 1 and were read as 0 to 255, rounded.",
    NoticeCode.CLASSES_RENAMED: "The class names were assigned to the folders or labels in sorted order. Check them.",
    NoticeCode.LABELS_RENUMBERED: "Class names that are numbers differ from the numbers inside arrays of labels, which "
    "count the classes from 0. The names stay. Name all classes in ⟦class_names⟧ to keep places for others.",
    NoticeCode.SIMILAR_CLASSES: "Names of classes differ only in case, in spaces or in forms of letters. Those that "
    "differ in spaces around them were read as one class; all others are classes of their own: rename those that are "
    "one class.",
    NoticeCode.EMPTY_CLASSES: "Classes have no training image. A folder without images is no class; a declared class "
    "without images cannot be learned.",
    NoticeCode.SINGLE_IMAGE_CLASSES: "Classes have a single training image. A model of such a "
    "class would show that image: merge the class with another, or leave it out.",
    NoticeCode.IMBALANCED_CLASSES: "The largest class has more than 100 times the images of these. Little can be "
    "learned about such small classes.",
    NoticeCode.CONFLICTING_LABELS: "Images have the same pixels as one of another class. Which label is right?",
    NoticeCode.TEST_IN_TRAIN: "Test images have the same pixels as training images, so figures measured on them are "
    "too good. Remove them from one of the splits.",
    NoticeCode.NEARLY_BLACK: "No value of these images is above 15 of 255, so they are nearly black. Multiply masks of "
    "0 and 1 by 255; scale other values to 0..255.",
    NoticeCode.CONSTANT_IMAGES: "Images show a single colour. Such an image occurs in many data sets and ties their "
    "budgets together; ⟦leave_out_constant_images⟧ leaves it out.",
    NoticeCode.CONSTANT_IMAGES_LEFT_OUT: "Images of a single colour were left out, as you asked.",
    NoticeCode.REPEATED_IMAGES: "Images have the same pixels as an earlier one. The guarantee covers each "
    "record by itself, not all copies together: remove the copies, or group them as one unit.",
    NoticeCode.SHARES_RECORDS: "Images were uploaded before, so this data set shares the budget of that upload for "
    "ever.",
    NoticeCode.SHARES_CONSTANT_IMAGES: "Images that were uploaded before show a single colour. If the data sets have "
    "nothing else in common, use ⟦leave_out_constant_images⟧ next time.",
}
"""The meaning of each code, and advice on what to do about it."""


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("Examples must be printable.")
    return text


Example = Annotated[str, StringConstraints(max_length=_EXAMPLE_LENGTH), AfterValidator(_check_printable)]


class Notice(BaseModel):
    """One thing to know about an upload. Private.

    Attributes:
        code: Stable.
        count: Number of files, images, arrays, classes or persons it concerns.
        examples: The first of them.
    """

    # `message` is computed, so it is ignored where a notice is read back.
    model_config = ConfigDict(frozen=True, extra="ignore")

    code: NoticeCode
    count: int = Field(ge=1, description="Files, images, arrays, classes or persons that it concerns.")
    examples: tuple[Example, ...] = Field(default=(), max_length=EXAMPLES, description="The first of them.")

    @computed_field(description="What it means and what to do.")  # type: ignore[prop-decorator]
    @property
    def message(self) -> str:
        """Return its meaning, and advice on what to do."""
        return speak(MESSAGES[self.code])


class Notices:
    """Collects notices while an upload is read; equal codes become one notice."""

    def __init__(self) -> None:
        self._counts: dict[NoticeCode, int] = {}
        self._examples: dict[NoticeCode, list[str]] = {}

    def add(self, code: NoticeCode, items: Iterable[object]) -> None:
        """Count `items` under `code`; the first of them become examples."""
        examples = self._examples.setdefault(code, [])
        for item in items:
            self._counts[code] = self._counts.get(code, 0) + 1
            if len(examples) < EXAMPLES:
                examples.append(_shortened(str(item)))

    def count(self, code: NoticeCode, number: int) -> None:
        """Add `number` cases without examples."""
        if number:
            self._counts[code] = self._counts.get(code, 0) + number

    def collected(self) -> tuple[Notice, ...]:
        """Return all notices, in the order of `NoticeCode`."""
        return tuple(
            Notice(code=code, count=self._counts[code], examples=tuple(self._examples.get(code, ())))
            for code in NoticeCode
            if self._counts.get(code)
        )


def count_notices(code: NoticeCode, notices: Iterable[Notice]) -> int:
    """Count the cases of a notice; 0 without it."""
    return sum(notice.count for notice in notices if notice.code is code)


def _shortened(text: str) -> str:
    plain = "".join(character if character.isprintable() else "?" for character in text)
    return plain if len(plain) <= _EXAMPLE_LENGTH else plain[: _EXAMPLE_LENGTH - 1] + "…"
