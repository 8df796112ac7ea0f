import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import ReadingChoices, read_upload, read_with_notices
from datalens_service.data.dataset import Upload
from datalens_service.data.intake.readers import npz

from .builders import damaged_copies, npy_bytes, random_images, write_npz, write_zip
from .hostile import npy

IMAGES = random_images(6, 8, 7)
LABELS = np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8)
TEST_IMAGES = random_images(2, 8, 7, seed=1)
TEST_LABELS = np.array([2, 0], dtype=np.uint8)


def read(path: Path, **arrays: Any) -> Upload:
    return read_upload(write_npz(path / "upload", **arrays))


def test_medmnist_keys(tmp_path: Path) -> None:
    upload = read(
        tmp_path,
        train_images=IMAGES,
        train_labels=LABELS[:, None],
        val_images=IMAGES[:3],
        val_labels=LABELS[:3],
        test_images=TEST_IMAGES,
        test_labels=TEST_LABELS[:, None],
    )
    schema, train, test = upload
    assert schema.model_dump() == {
        "channels": 1,
        "height": 8,
        "width": 7,
        "class_names": ("0", "1", "2"),
        "num_units": 6,
        "unit": "record",
        "records_per_unit": 1,
        "classes_per_unit": 1,
        "test_is_public": False,
    }
    assert train.images.dtype == np.uint8
    assert train.labels.dtype == np.int64
    np.testing.assert_array_equal(train.images, IMAGES[..., None])
    np.testing.assert_array_equal(train.labels, LABELS)
    assert test is not None
    np.testing.assert_array_equal(test.images, TEST_IMAGES[..., None])
    np.testing.assert_array_equal(test.labels, TEST_LABELS)


@pytest.mark.parametrize(
    "keys",
    [
        ("x_train", "y_train", "x_test", "y_test"),
        ("images", "labels", "test_images", "test_labels"),
        ("x", "y", "x_test", "y_test"),
    ],
)
def test_other_keys_with_and_without_a_test_split(tmp_path: Path, keys: tuple[str, str, str, str]) -> None:
    both = dict(zip(keys, (IMAGES, LABELS, TEST_IMAGES, TEST_LABELS), strict=True))
    upload = read(tmp_path, **both)
    assert upload.test is not None
    np.testing.assert_array_equal(upload.test.labels, TEST_LABELS)
    alone = read(tmp_path, **{key: both[key] for key in keys[:2]})
    assert alone.test is None
    np.testing.assert_array_equal(alone.train.images, IMAGES[..., None])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_channel_axis_is_kept(tmp_path: Path, channels: int) -> None:
    images = random_images(6, 8, 7, channels)
    upload = read(tmp_path, images=images, labels=LABELS)
    assert upload.schema.channels == channels
    np.testing.assert_array_equal(upload.train.images, images)


@pytest.mark.parametrize("dtype", ["<i8", ">i4", "<u2", ">u8", "i1"])
def test_integers_in_range_become_bytes(tmp_path: Path, dtype: str) -> None:
    images = IMAGES % 128
    np.testing.assert_array_equal(
        read(tmp_path, images=images.astype(dtype), labels=LABELS).train.images, images[..., None]
    )


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f8"])
def test_floats_in_the_unit_interval_become_bytes(tmp_path: Path, dtype: str) -> None:
    images = (IMAGES / 255).astype(dtype)
    np.testing.assert_array_equal(read(tmp_path, images=images, labels=LABELS).train.images, IMAGES[..., None])


def test_floats_are_rounded_to_the_nearest_byte(tmp_path: Path) -> None:
    images = np.full((2, 4, 4), 0.999)
    assert set(read(tmp_path, images=images, labels=LABELS[:2]).train.images.flat) == {255}


def test_fortran_order_is_not_mixed_up(tmp_path: Path) -> None:
    upload = read(tmp_path, images=np.asfortranarray(IMAGES), labels=LABELS)
    np.testing.assert_array_equal(upload.train.images, IMAGES[..., None])
    assert upload.train.images.flags.c_contiguous


def test_conversion_reaches_every_block(tmp_path: Path) -> None:
    images = random_images(9000, 4, 4)
    labels = np.zeros(9000, dtype=np.int32)
    np.testing.assert_array_equal(
        read(tmp_path, images=images.astype(np.int16), labels=labels).train.images, images[..., None]
    )
    spoilt = images.astype(np.int16)
    spoilt[-1, 3, 3] = 256
    with pytest.raises(InvalidDataset, match=r"0\.\.255"):
        read(tmp_path, images=spoilt, labels=labels)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, bool])
def test_one_hot_labels_declare_all_their_classes(tmp_path: Path, dtype: Any) -> None:
    upload = read(tmp_path, images=IMAGES, labels=np.eye(5)[LABELS].astype(dtype))
    assert upload.train.labels.tolist() == LABELS.tolist()
    assert upload.schema.class_names == tuple("01234")


def test_words_as_labels_name_the_classes(tmp_path: Path) -> None:
    words = np.array(["well", "ill", "worse"])
    upload = read(
        tmp_path, x_train=IMAGES, y_train=words[LABELS], x_test=TEST_IMAGES, y_test=words[TEST_LABELS][:, np.newaxis]
    )
    assert upload.schema.class_names == ("ill", "well", "worse")
    assert [upload.schema.class_names[label] for label in upload.train.labels] == words[LABELS].tolist()
    assert upload.test is not None
    assert [upload.schema.class_names[label] for label in upload.test.labels] == words[TEST_LABELS].tolist()
    with pytest.raises(InvalidDataset, match="of one kind"):
        read(tmp_path, x_train=IMAGES, y_train=words[LABELS], x_test=TEST_IMAGES, y_test=TEST_LABELS)


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_may_stand_before_height_and_width(tmp_path: Path, channels: int) -> None:
    images = random_images(6, 9, 7, channels).reshape(6, 9, 7, channels)
    path = write_npz(tmp_path / "first", images=images.transpose(0, 3, 1, 2), labels=LABELS)
    upload, notices = read_with_notices(path)
    np.testing.assert_array_equal(upload.train.images, images)
    assert [(notice.code, notice.examples) for notice in notices] == [("channels_first", ("images",))]


def test_class_names_declared_beat_those_in_the_file(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a", images=IMAGES, labels=LABELS, class_names=np.array(["a", "b", "c", "none"]))
    assert read_upload(path).schema.class_names == ("a", "b", "c", "none")
    assert read_upload(path, ReadingChoices(class_names=("x", "y", "z"))).schema.class_names == ("x", "y", "z")
    with pytest.raises(InvalidDataset, match="2 names, and the upload has 3 classes"):
        read_upload(path, ReadingChoices(class_names=("x", "y")))


def test_labels_that_occur_are_the_classes_and_the_test_split_counts(tmp_path: Path) -> None:
    upload = read(
        tmp_path, train_images=IMAGES, train_labels=LABELS * 2, test_images=TEST_IMAGES, test_labels=TEST_LABELS * 3
    )
    assert upload.schema.class_names == tuple("0246")


def bright(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values)[:, None, None] * np.ones((1, 8, 8))


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"images": IMAGES}, "name its arrays"),
        ({"pixels": IMAGES, "labels": LABELS}, "name its arrays"),
        ({"images": IMAGES, "labels": LABELS, "x": IMAGES, "y": LABELS}, "in one way"),
        ({"images": IMAGES, "labels": LABELS, "test_images": IMAGES}, "needs both"),
        ({"images": IMAGES[0], "labels": LABELS}, "shape"),
        ({"images": random_images(6, 8, 7, 2), "labels": LABELS}, "1 or 3"),
        ({"images": random_images(6, 3, 7), "labels": LABELS}, "4 to 256 pixels"),
        ({"images": random_images(6, 4, 257), "labels": LABELS}, "at most 256 are accepted on each side: choose one"),
        ({"images": IMAGES, "labels": LABELS[:5]}, "exactly one label"),
        ({"images": IMAGES, "labels": np.eye(6, dtype=np.int64) * 2}, "one 1 in each row"),
        ({"images": IMAGES, "labels": np.ones((6, 2), dtype=np.float32)}, "several labels"),
        ({"images": IMAGES, "labels": np.full((6, 2), np.nan)}, "one 1 in each row"),
        ({"images": IMAGES, "labels": np.zeros((6, 1001), np.uint8)}, "one-hot rows"),
        ({"images": IMAGES, "labels": LABELS / np.float32(2)}, "has a fraction"),
        ({"images": IMAGES, "labels": np.where(LABELS > 1, np.nan, 0)}, "NaN"),
        ({"images": IMAGES, "labels": np.array([b"a", b"\xe9"] * 3)}, "no text in UTF-8"),
        ({"images": IMAGES, "labels": np.array(["a", " "] * 3)}, "3 of 6 labels are missing"),
        ({"images": IMAGES, "labels": LABELS * 1j}, "must be integers"),
        ({"images": IMAGES, "labels": LABELS.astype(np.int64) - 1}, "negative"),
        ({"images": IMAGES, "labels": LABELS.astype(np.uint64) + 2**63}, "15 digits"),
        ({"images": IMAGES[:1], "labels": LABELS[:1]}, "two or more"),
        ({"images": IMAGES[:, 0], "labels": LABELS}, "reshape the array"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "empty"),
        ({"images": np.zeros((2**40, 0, 4), np.int8), "labels": LABELS}, "empty"),
        ({"images": IMAGES.astype(np.int16) - 1, "labels": LABELS}, r"0\.\.255"),
        ({"images": IMAGES.astype(np.float32) + 1, "labels": LABELS}, r"\[0, 1\]"),
        ({"images": bright(1, 300, 1, 1, 1, 1), "labels": LABELS}, "Image 1 "),
        ({"images": bright(9, 9, 0.5, 1, 1, 1), "labels": LABELS}, "not certain"),
        ({"images": np.where(IMAGES > 9, 0.5, np.nan), "labels": LABELS}, "NaN"),
        ({"images": np.where(IMAGES > 9, 0.5, np.inf), "labels": LABELS}, "finite"),
        ({"images": np.where(IMAGES > 9, 0.5, -0.01), "labels": LABELS}, r"\[0, 1\]"),
        ({"images": IMAGES > 9, "labels": LABELS}, "integers in"),
        ({"images": IMAGES.astype(np.complex64), "labels": LABELS}, "integers in"),
        ({"images": IMAGES.view(dtype=[("pixel", "u1")]), "labels": LABELS}, "Python objects"),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.array([1, 2, 3])}, "of strings"),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.array([["a", "b", "c"]])}, "of strings"),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.array(["a", "b", "a"])}, "differ"),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.array(["a", "b", "c\x1b[2J"])}, "printable"),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.array(["a", "b", "  "])}, "printable"),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.array(["a", "b", "c" * 101])}, "100"),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.arange(1001).astype(str)}, "at most 1000 classes"),
        (
            {
                "train_images": IMAGES,
                "train_labels": LABELS,
                "test_images": random_images(2, 7, 8),
                "test_labels": LABELS[:2],
            },
            "Your 8 images have different sizes, 7 to 8 pixels",
        ),
    ],
)
def test_unusable_arrays_are_refused_with_what_to_change(tmp_path: Path, arrays: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidDataset, match=sentence):
        read(tmp_path, **arrays)


HEADER = "{'descr': '|u1', 'fortran_order': False, 'shape': (%s), }"

BROKEN_ARRAYS = {
    "shorter than declared": npy(HEADER % "6, 8, 7", bytes(335)),
    "longer than declared": npy(HEADER % "6, 8, 7", bytes(337)),
    "negative": npy(HEADER % "-6, -8, 7", bytes(336)),
    "length of many digits": npy(HEADER % ("9" * 5000), bytes(336)),
    "not a tuple": npy(HEADER.replace("(%s)", "336"), bytes(336)),
    "no dictionary": npy("[1, 2]", bytes(336)),
    "missing key": npy("{'descr': '|u1'}", bytes(336)),
    "unhashable key": npy("{[]: 1}", bytes(336)),
    "unknown type": npy(HEADER.replace("|u1", "|q9") % "6, 8, 7", bytes(336)),
    "type is a list": npy(HEADER.replace("'|u1'", "[('a', [('b', 3)])]") % "6, 8, 7", bytes(336)),
    "cut in the header": npy(HEADER % "6, 8, 7")[:30],
    "cut in the magic": b"\x93NUM",
    "no magic": bytes(400),
    "version 2": npy(HEADER % "6, 8, 7", bytes(336), b"\x02\x00"),
    "version 2 with a header of 4 GiB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(400),
    "version 9": npy(HEADER % "6, 8, 7", bytes(336), b"\x09\x00"),
    "empty": b"",
}


def test_the_handmade_header_is_read_where_it_is_right(tmp_path: Path) -> None:
    whole = {"images.npy": npy(HEADER % "6, 8, 7", IMAGES.tobytes()), "labels.npy": npy_bytes(LABELS)}
    upload = read_upload(write_zip(tmp_path / "a", whole))
    np.testing.assert_array_equal(upload.train.images, IMAGES[..., None])


@pytest.mark.parametrize("kind", BROKEN_ARRAYS)
def test_broken_arrays_are_refused(tmp_path: Path, kind: str) -> None:
    path = write_zip(tmp_path / "a", {"labels.npy": npy_bytes(LABELS), "images.npy": BROKEN_ARRAYS[kind]})
    with pytest.raises(InvalidDataset, match="damaged or not in NumPy's format"):
        read_upload(path)


def test_nothing_is_unpacked_when_a_later_header_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_npz(tmp_path / "a", images=IMAGES, labels=LABELS * 1j)
    monkeypatch.setattr(npz.npy, "read_array", lambda *_, **__: pytest.fail("an array was read"))
    with pytest.raises(InvalidDataset, match="must be integers"):
        read_upload(path)


def test_flipped_bits_are_refused_or_read_and_never_crash(tmp_path: Path) -> None:
    whole = write_npz(tmp_path / "a", images=IMAGES, labels=LABELS).read_bytes()
    path = tmp_path / "b"
    refused = 0
    for data in damaged_copies(whole, 400):
        path.write_bytes(data)
        try:
            read_upload(path)
        except InvalidDataset:
            refused += 1
    assert refused > 200


def test_uncompressed_npz(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, images=IMAGES, labels=LABELS)
    (tmp_path / "a").write_bytes(buffer.getvalue())
    assert zipfile.ZipFile(tmp_path / "a").infolist()[0].compress_type == zipfile.ZIP_STORED
    np.testing.assert_array_equal(read_upload(tmp_path / "a").train.images, IMAGES[..., None])


@pytest.mark.mnist
def test_mnist(mnist: Path) -> None:
    schema, train, test = read_upload(mnist)
    assert (schema.num_units, schema.height, schema.width, schema.channels) == (60_000, 28, 28, 1)
    assert schema.class_names == tuple("0123456789")
    # Class sizes of the original files (LeCun, Cortes & Burges).
    assert np.bincount(train.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert test is not None
    assert np.bincount(test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # The mean that the field normalises by.
    assert train.images.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
