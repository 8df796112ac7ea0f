"""Test images that are declared public: said in the schema, and refused if a private image is among them."""

import numpy as np
import pytest

from datalens_service.data.assembly import build_upload, with_public_test
from datalens_service.data.dataset import Split
from datalens_service.errors import InvalidDataset


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
