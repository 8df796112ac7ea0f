import sys

import numpy as np
import pytest
from pydantic import ValidationError

from datalens_service.base.errors import InvalidDataset, WorkerUnavailable
from datalens_service.data.dataset import Dataset, Schema, Split, check_split
from datalens_service.data.digits import digits
from datalens_service.data.intake.assembly import build_upload, with_public_test

from .builders import random_images

LABELS = np.array([0, 1, 2, 0], dtype=np.int64)


def test_schema_counts_numbers_and_classes() -> None:
    schema = Schema(channels=3, height=6, width=5, class_names=("cat", "dog"), num_units=7)
    assert (schema.dimensions, schema.num_classes) == (90, 2)


@pytest.mark.parametrize(
    "change",
    [{"height": 3}, {"width": 257}, {"channels": 5}, {"class_names": ()}, {"num_units": 1}, {"mean_pixel": 0.1}],
)
def test_schema_refuses_what_the_product_cannot_train_on(schema: Schema, change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Schema.model_validate({**schema.model_dump(), **change})


@pytest.mark.parametrize(
    ("images", "labels", "sentence"),
    [
        (random_images(4, 6, 5, 1).astype(np.float32), LABELS, "uint8 of shape"),
        (random_images(4, 5, 6, 1), LABELS, r"\(n, 6, 5, 1\)"),
        (random_images(4, 6, 5), LABELS, "uint8 of shape"),
        (random_images(3, 6, 5, 1), LABELS, "exactly one label"),
        (random_images(4, 6, 5, 1), LABELS.reshape(4, 1), "exactly one label"),
        (random_images(0, 6, 5, 1), LABELS[:0], "must not be empty"),
        (random_images(4, 6, 5, 1), LABELS + 1, r"0\.\.2"),
        (random_images(4, 6, 5, 1), LABELS - 1, r"0\.\.2"),
    ],
)
def test_check_split_refuses_what_contradicts_the_schema(
    schema: Schema, images: np.ndarray, labels: np.ndarray, sentence: str
) -> None:
    with pytest.raises(InvalidDataset, match=sentence):
        check_split(schema, Split(images, labels))


def test_dataset_checks_both_splits_and_the_public_number(dataset: Dataset) -> None:
    bad = Split(dataset.train.images, dataset.train.labels + 1)
    for train, test in ((bad, None), (dataset.train, bad)):
        with pytest.raises(InvalidDataset, match=r"0\.\.2"):
            Dataset(dataset.schema, train, test, b"k" * 32)
    with pytest.raises(InvalidDataset, match="number of units"):
        Dataset(dataset.schema.model_copy(update={"num_units": 11}), dataset.train, None, b"k" * 32)


@pytest.mark.parametrize("key", [b"", b"k" * 15])
def test_a_data_set_without_a_secret_key_cannot_be_built(dataset: Dataset, key: bytes) -> None:
    with pytest.raises(InvalidDataset, match="key"):
        Dataset(dataset.schema, dataset.train, dataset.test, key)
    assert Dataset(dataset.schema, dataset.train, dataset.test, b"k" * 16).partition_key == b"k" * 16


def test_printing_a_split_shows_no_record() -> None:
    split = Split(np.full((2, 6, 5, 1), 77, dtype=np.uint8), np.array([2, 2], dtype=np.int64))
    assert repr(split) == "Split(private images)"


def test_shapes_range_and_classes() -> None:
    schema, train, test = digits()
    assert test is not None
    assert Dataset(schema, train, test, b"k" * 32).schema.class_names == tuple("0123456789")
    assert (schema.height, schema.width, schema.channels) == (8, 8, 1)
    assert (len(train.labels), len(test.labels)) == (1438, 359)
    assert set(np.unique(train.images)) == {round(value * 255 / 16) for value in range(17)}


def test_the_splits_are_the_whole_set_once() -> None:
    from sklearn.datasets import load_digits

    _, train, test = digits()
    assert test is not None
    pixels, target = load_digits(return_X_y=True)
    ours = np.concatenate([train.images, test.images]).reshape(1797, 64)
    rows = np.column_stack([np.rint(ours * (16 / 255)), np.concatenate([train.labels, test.labels])])
    theirs = np.column_stack([pixels, target])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, theirs))


def test_the_split_is_mixed_and_repeats() -> None:
    _, train, test = digits()
    assert test is not None
    assert np.bincount(test.labels, minlength=10).min() >= 20
    np.testing.assert_array_equal(digits()[1].images, train.images)
    # A changed split would make figures of the demo incomparable with earlier ones.
    assert train.labels[:10].tolist() == [0, 4, 9, 5, 8, 5, 3, 3, 9, 7]


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(WorkerUnavailable, match=r"pip install 'datalens-service\[demo\]'"):
        digits()


def split(count: int, first: int) -> Split:
    images = np.arange(first, first + count, dtype=np.uint8)[:, None, None, None] + np.zeros((1, 4, 4, 1), np.uint8)
    return Split(images, np.arange(count, dtype=np.int64) % 2)


def test_the_schema_says_so_and_nothing_else_changes():
    upload = build_upload(split(20, 0), split(6, 100), ("a", "b"))
    public = with_public_test(upload)
    assert (upload.schema.test_is_public, public.schema.test_is_public) == (False, True)
    assert public.schema.model_copy(update={"test_is_public": False}) == upload.schema
    assert public.test is upload.test


@pytest.mark.parametrize("test", [None, split(6, 15)], ids=["none", "a training image"])
def test_what_cannot_be_public_is_refused(test):
    with pytest.raises(InvalidDataset, match="public"):
        with_public_test(build_upload(split(20, 0), test, ("a", "b")))
