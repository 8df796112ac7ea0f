"""From the index of an upload to its records: the checks that every format passes, in one order.

Names come first, since they become public; then groups of records; pixels last, as they take longest.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import MAXIMUM_CLASSES, Labels, Schema, Split, Upload, check_upload
from datalens_service.data.image_sizes import MAXIMUM_SIDE
from datalens_service.data.intake.identifying_names import check_publishable, refuse_persons
from datalens_service.data.intake.persons import (
    Persons,
    identify,
    note_keys,
    refuse_one_for_all,
    refuse_persons_in_both,
)
from datalens_service.data.intake.persons_in_names import FileName, persons_in_names
from datalens_service.data.intake.readers.base import ClassNames, Groups, RecordIndex, UploadIndex, check_class_names
from datalens_service.data.intake.readers.labels import has_no_labels, number_labels
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.images import DecodedImages
from datalens_service.data.intake.untrusted.shapes import MixedShapes, Shape, check_alike
from datalens_service.data.intake.untrusted.validation_errors import BadFile
from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.data.preparation_settings import PrepareSettings
from datalens_service.data.privacy_units import MAXIMUM_RECORDS_PER_UNIT, UnitDeclaration, group_key

PRIVATE_READS = ("reading the upload",)


class Assembled(NamedTuple):
    """An upload with one name of each person in it, by `Split.groups`; empty where it has none. Private."""

    upload: Upload
    names: Mapping[int, str]


def assemble(index: UploadIndex, choices: ReadingChoices, notices: Notices) -> Assembled:
    """Read and check the records of an upload.

    Raises:
        UnusableFiles: Names all files that cannot be used.
    """
    index = _without_unlabelled_test(index, notices)
    splits = [index.train] if index.test is None else [index.train, index.test]
    labels, names = number_labels({one.called: one.labels for one in splits}, choices.class_names, notices)
    check_class_names(names)
    groups = _read_groups(index, names, choices)
    note_keys(groups, notices)
    notices.add(NoticeCode.EMPTY_CLASSES, sorted(set(index.empty_classes) - set(names)))
    persons = [identify(one) for one in groups]
    train, test = _read_splits(splits, labels, persons)
    if not groups[0].are_known:
        _note_names(splits, labels, names, notices)
    units = _declare_units(groups[0], train, choices)
    train = train if units else replace(train, units=None)
    ignored = groups[0].are_known and choices.ignore_groups
    schema = _build_schema(train, names, units).model_copy(update={"groups_ignored": ignored})
    preparation = index.preparation if choices.preparation is None else None
    upload = _checked(Upload(schema, train, test), preparation)
    return Assembled(upload, {number: name for one in persons for number, name in one.names.items()})


def build_upload(train: Split, test: Split | None, class_names: ClassNames) -> Upload:
    """Put checked parts together; every record is a unit of its own.

    Args:
        train: Images uint8 (n, height, width, channels) and labels int64 (n,).
        test: The same, or None.
        class_names: Public names; every label is an index into them.

    Raises:
        InvalidDataset: Sizes, labels or names are outside what the product accepts.
    """
    check_class_names(class_names)
    return _checked(Upload(_build_schema(train, class_names, None), train, test), None)


def with_training_rows(upload: Upload, rows: NDArray[np.int64]) -> Upload:
    """Return the upload with some of its training records alone, as it was declared.

    Raises:
        InvalidDataset: Fewer than two units remain.
    """
    kept = upload.train.take(rows)
    count = _check_count(kept, upload.schema.unit)
    return _checked(Upload(upload.schema.model_copy(update={"num_units": count}), kept, upload.test), None)


def with_public_test(upload: Upload, names: Mapping[int, str] | None = None) -> Upload:
    """Return the upload with its test split declared public.

    Args:
        names: One name of each person, by `Split.groups`, for a refusal.

    Raises:
        InvalidDataset: There is none, or one of its images is a training image.
        PersonsInBothSplits: One of its images is of a person who has training images.
    """
    if upload.test is None:
        raise InvalidDataset("There is no test split that could be public: add test_images and test_labels.")
    private = {image.tobytes() for image in upload.train.images}
    if any(image.tobytes() in private for image in upload.test.images):
        raise InvalidDataset("A test split that is public must not hold training images: they would be public, too.")
    refuse_persons_in_both(upload.train, upload.test, names or {}, upload.schema.unit)
    return upload._replace(schema=upload.schema.model_copy(update={"test_is_public": True}))


def with_preparation(upload: Upload, settings: PrepareSettings | None) -> Upload:
    """Record in the schema how the images were prepared, if they were.

    Raises:
        InvalidDataset: The images have another size than the settings.
    """
    if settings is None:
        return upload
    if (upload.schema.width, upload.schema.height) != (settings.width, settings.height):
        raise InvalidDataset("The array preparation names another size than the images have. Leave it out.")
    settled = settings.settled(upload.schema.channels)
    return upload._replace(schema=upload.schema.model_copy(update={"preparation": settled}))


def _checked(upload: Upload, preparation: PrepareSettings | None) -> Upload:
    check_upload(upload)
    return with_preparation(upload, preparation)


def _read_groups(index: UploadIndex, names: ClassNames, choices: ReadingChoices) -> list[Groups]:
    """Read the groups of each split; those of test images mean something only beside those of training images."""
    groups = _publishable_groups(index, names, choices)
    if choices.group_column is not None and not groups.are_known:
        raise InvalidDataset("⟦group_column⟧ was declared, but nothing of that name in the upload says who is who.")
    if not choices.ignore_groups:
        refuse_one_for_all(groups)
    if index.test is None:
        return [groups]
    return [groups, index.test.read_groups() if groups.are_known else Groups()]


def _publishable_groups(index: UploadIndex, names: ClassNames, choices: ReadingChoices) -> Groups:
    """Read the groups of the training split, after refusing class names that are those of persons, or look like it."""
    if choices.allow_identifying_classes:
        return index.train.read_groups()
    refuse_persons(index.persons_as_classes, "they are PatientID or PatientName of their DICOM files", len(names))
    check_publishable(names, len(index.train.labels.words))
    groups = index.train.read_groups()
    both = _classes_that_are_groups(index.train.labels.words, groups.names or ())
    refuse_persons(both, "they are the names of groups", len(names))
    return groups


def _classes_that_are_groups(labels: Sequence[str], groups: Sequence[str | None]) -> tuple[str, ...]:
    """List the labels that are the name of the group of each of their records; small numbers mean nothing."""
    keys_of = dict[str, set[str]]()
    for label, group in zip(labels, groups, strict=False):
        keys_of.setdefault(label, set()).add(group_key(group or ""))
    return tuple(label for label, keys in keys_of.items() if keys == {group_key(label)} and not label.isdigit())


def _without_unlabelled_test(index: UploadIndex, notices: Notices) -> UploadIndex:
    """Drop a test split that has no labels, and note that."""
    if index.test is None or not index.test.labels.words or not has_no_labels(index.test.labels):
        return index
    words = index.test.labels.words
    notices.add(NoticeCode.UNLABELLED_TEST, [f"{index.test.called}: {words[0] or 'no label'}"])
    notices.count(NoticeCode.UNLABELLED_TEST, len(words) - 1)
    return index._replace(test=None)


def _read_images(splits: Sequence[RecordIndex]) -> list[DecodedImages]:
    """Read the images of all splits, which must be alike.

    Raises:
        UnusableFiles: Names all files that cannot be used.
        InvalidDataset: Images are not alike, with one offer for all splits; or none of a split can be read.
    """
    found, shapes, bad_files = list[DecodedImages](), Counter[Shape](), tuple[BadFile, ...]()
    for index in splits:
        if len(index.labels.words) == 0:
            raise InvalidDataset("There are no images with labels.")
        try:
            images, rows = index.read_images(found[0].images[0] if found else None)
        except MixedShapes as mixed:
            shapes += mixed.shapes
            bad_files += mixed.bad_files
            continue
        if not len(rows):
            raise InvalidDataset("No image of a split can be read.")
        _, height, width, channels = images.shape
        shapes += Counter({Shape(width, height, channels): len(rows)})
        found.append(DecodedImages(images, rows))
    check_alike(shapes, bad_files)
    return found


def _read_splits(
    splits: Sequence[RecordIndex], labels: Sequence[Labels], persons: Sequence[Persons]
) -> tuple[Split, Split | None]:
    """Read the records of the training and the test split; units are made of training records alone."""
    images = _read_images(splits)
    train = _split(images[0], labels[0], persons[0])
    return train, None if len(splits) == 1 else _split(images[1], labels[1], persons[1]._replace(units=None))


def _split(decoded: DecodedImages, labels: Labels, persons: Persons) -> Split:
    images, rows = decoded
    units, groups = (None if ids is None else ids[rows] for ids in (persons.units, persons.groups))
    return Split(images, labels[rows], units, groups)


def _note_names(
    splits: Sequence[RecordIndex], labels: Sequence[Labels], class_names: ClassNames, notices: Notices
) -> None:
    """Note names of files that may name persons, in all splits together."""
    files = [
        FileName(name, class_names[label], index is not splits[0])
        for index, numbers in zip(splits, labels, strict=True)
        for name, label in zip(index.names or (), numbers, strict=False)
    ]
    notices.add(NoticeCode.PERSONS_IN_NAMES, persons_in_names(files))


def _declare_units(groups: Groups, train: Split, choices: ReadingChoices) -> UnitDeclaration | None:
    """Return the declaration of a unit, named by the upload if the owner named none. None: every record is a unit."""
    if train.units is None or choices.ignore_groups:
        _check_no_units(choices)
        return None
    largest = max(Counter(train.unit_ids.tolist()).values())
    units = choices.units
    if units is None and largest == 1:
        return None
    if units is None and choices.infer_units:
        units = UnitDeclaration(records=min(largest, MAXIMUM_RECORDS_PER_UNIT))
    if units is None:
        raise InvalidDataset(
            f"The upload says which images belong to one {groups.word}, and one {groups.word} has up to "
            f"{largest} training images. Declare ⟦records_per_unit⟧, the most that one may have (at least {largest}), "
            f"so that the {groups.word} is protected; or set ⟦ignore_groups⟧ to protect single images."
        )
    return units if units.name is not None else units.model_copy(update={"name": groups.word})


def _check_no_units(choices: ReadingChoices) -> None:
    if choices.units is not None:
        raise InvalidDataset(
            "⟦records_per_unit⟧ was declared, but the upload does not say which images belong together. Add an array "
            "'groups' to the NPZ, a metadata.csv with the columns file_name and patient beside the images, or a column "
            "patient to the table."
        )


def _build_schema(train: Split, class_names: Sequence[str], units: UnitDeclaration | None) -> Schema:
    _, height, width, channels = train.images.shape
    declared: dict[str, object] = {}
    if units is not None:
        reached = units.bound_classes(len(class_names))
        declared = {"unit": units.name or "group", "records_per_unit": units.records, "classes_per_unit": reached}
    count = _check_count(train, units.name if units and units.name else "record")
    size = {"channels": channels, "height": height, "width": width}
    try:
        return Schema.model_validate({**size, "class_names": class_names, "num_units": count, **declared})
    except ValidationError:
        raise InvalidDataset(
            f"Images must measure 4 to {MAXIMUM_SIDE} pixels on each side, and there must be 1 to {MAXIMUM_CLASSES} "
            f"classes: these measure {width} by {height}. Resize the images or join classes."
        ) from None


def _check_count(train: Split, unit: str) -> int:
    """Count the units, of which there must be two."""
    count = len(np.unique(train.unit_ids))
    if count < 2:
        raise InvalidDataset(
            f"There are too few training images: {train.count.for_owner()}, of one {unit}. Training needs those of two "
            "or more."
        )
    return count
