import sys

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset
from datalens_service.data.digits import digits
from datalens_service.errors import WorkerUnavailable


def test_shapes_range_and_classes() -> None:
    schema, train, test = digits()
    assert test is not None
    assert Dataset(schema, train, test, b"k" * 32).schema.class_names == tuple("0123456789")
    assert (schema.height, schema.width, schema.channels) == (8, 8, 1)
    assert (len(train), len(test)) == (1438, 359)
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
