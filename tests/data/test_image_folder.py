import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import ReadingChoices, read_upload
from datalens_service.data.dataset import Upload
from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS, Limits

from .builders import Contents, damaged_copies, encoded, grey, random_images, write_zip
from .hostile import COLOURS, PIXELS, png


def read(folder: Path, contents: Contents, limits: Limits = DEFAULT_LIMITS) -> Upload:
    return read_upload(write_zip(folder / "upload", contents), limits=limits)


def test_classes_are_sorted_folders_and_records_sorted_names(tmp_path: Path) -> None:
    contents = {"dog/2.png": grey(2), "cat/9.png": grey(9), "dog/1.png": grey(1), "ant/7.png": grey(7)}
    schema, train, test = read(tmp_path, contents)
    assert schema.class_names == ("ant", "cat", "dog")
    assert (schema.channels, schema.height, schema.width, schema.num_units) == (1, 8, 8, 4)
    assert train.images[:, 0, 0, 0].tolist() == [7, 9, 1, 2]
    assert train.labels.tolist() == [0, 1, 2, 2]
    assert test is None


def test_pixels_survive_in_place(tmp_path: Path) -> None:
    images = random_images(2, 9, 6, 3)
    contents = {f"a/{i}.png": encoded(Image.fromarray(image)) for i, image in enumerate(images)}
    schema, train, _ = read(tmp_path, contents)
    assert (schema.height, schema.width, schema.channels) == (9, 6, 3)
    np.testing.assert_array_equal(train.images, images)


def test_jpeg_is_read(tmp_path: Path) -> None:
    stripes = Image.fromarray(np.repeat(np.array([[0], [255]], np.uint8), 8, axis=0).repeat(8, axis=1))
    schema, train, _ = read(tmp_path, {f"a/{i}.JPG": encoded(stripes, "JPEG") for i in range(2)})
    assert (schema.height, schema.width, schema.channels) == (16, 8, 1)
    assert train.images[0, :4].max() < 32
    assert train.images[0, -4:].min() > 223


@pytest.mark.parametrize("wrapper", ["", "my data/", "my data/v2/"])
@pytest.mark.parametrize("unused", ["val", "valid", "validation"])
def test_splits_with_and_without_a_wrapping_folder(tmp_path: Path, wrapper: str, unused: str) -> None:
    contents = {
        f"{wrapper}train/cat/1.png": grey(1),
        f"{wrapper}train/dog/2.png": grey(2),
        f"{wrapper}test/dog/3.png": grey(3),
        f"{wrapper}test/eel/4.png": grey(4),
        f"{wrapper}{unused}/fox/5.png": grey(5),
    }
    schema, train, test = read(tmp_path, contents)
    assert schema.class_names == ("cat", "dog", "eel")
    assert (train.images[:, 0, 0, 0].tolist(), train.labels.tolist()) == ([1, 2], [0, 1])
    assert test is not None
    assert (test.images[:, 0, 0, 0].tolist(), test.labels.tolist()) == ([3, 4], [1, 2])


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    contents = {"train/1.png": grey(1), "car/2.png": grey(2)}
    with pytest.raises(InvalidDataset, match="a class or a split"):
        read(tmp_path, contents)
    declared = ReadingChoices(class_names=("car", "train"))
    assert read_upload(write_zip(tmp_path / "b", contents), declared).train.labels.tolist() == [0, 1]


def test_a_training_split_alone(tmp_path: Path) -> None:
    schema, train, test = read(tmp_path, {"train/a/1.png": grey(1), "train/b/2.png": grey(2)})
    assert (schema.class_names, len(train.labels), test) == (("a", "b"), 2, None)


def test_decomposed_names_are_the_same_class(tmp_path: Path) -> None:
    contents = {"a\u0308pfel/1.png": grey(1), "\u00e4pfel/2.png": grey(2)}
    assert read(tmp_path, contents).schema.class_names == ("\u00e4pfel",)


def test_declared_names_that_are_the_folders_set_the_order(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a", {"cat/1.png": grey(1), "dog/2.png": grey(2)})
    schema, train, _ = read_upload(path, ReadingChoices(class_names=("dog", "owl", "cat")))
    assert schema.class_names == ("dog", "owl", "cat")
    assert train.labels.tolist() == [2, 0]


def test_declared_names_that_are_not_the_folders_rename_them(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a", {"0/1.png": grey(1), "1/2.png": grey(2)})
    schema, train, _ = read_upload(path, ReadingChoices(class_names=("zero", "one", "two")))
    assert schema.class_names == ("zero", "one", "two")
    assert train.labels.tolist() == [0, 1]


@pytest.mark.parametrize("names", [("cat", "hound"), ("feline",)])
def test_declared_names_that_fit_in_part_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = write_zip(tmp_path / "a", {"cat/1.png": grey(1), "dog/2.png": grey(2)})
    with pytest.raises(InvalidDataset, match="name every class"):
        read_upload(path, ReadingChoices(class_names=names))


def test_the_handmade_png_is_read_where_it_is_right(tmp_path: Path) -> None:
    data = png(8, 8, 8, 2, zlib.compress((b"\0" + bytes(range(24))) * 8))
    assert read(tmp_path, {f"a/{i}.png": data for i in range(2)}).train.images[1, 7, 7].tolist() == [21, 22, 23]


def test_a_warning_turned_into_an_error_by_the_process_is_a_refusal(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidDataset, match="cannot be decoded"):
            read(tmp_path, {f"a/{i}.png": png(10_000, 10_000, 8, 0, b"") for i in range(2)})


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (grey(0, (8, 9)), "different sizes, 8 to 9 pixels"),
        (grey(0, (9, 8)), "different sizes, 8 to 9 pixels"),
        (encoded(COLOURS), r"8 by 8 pixels are partly grey \(1\), partly RGB \(1\)"),
    ],
    ids=["tall", "wide", "colour"],
)
def test_images_of_another_size_or_mode_are_refused_without_their_name(tmp_path: Path, other: bytes, says: str) -> None:
    with pytest.raises(InvalidDataset, match=says) as caught:
        read(tmp_path, {"a/1.png": grey(), "a/jane-doe.png": other})
    assert "jane" not in caught.value.detail


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        ({"1.png": grey(), "2.png": grey()}, "<class>/<image>"),
        ({"a/1.png": grey(), "2.png": grey()}, "<class>/<image>"),
        ({"a/1.png": grey(), "a/b/2.png": grey()}, "<class>/<image>"),
        ({"a/b/c/1.png": grey(), "c/d/e/2.png": grey()}, "<class>/<image>"),
        ({"train/1.png": grey(), "test/2.png": grey()}, "without classes"),
        ({"a/train/1.png": grey(), "b/test/2.png": grey()}, "inside class folders"),
        ({"train/a/1.png": grey(), "b/2.png": grey()}, "a class or a split"),
        ({"test/a/1.png": grey(), "test/a/2.png": grey()}, "no training images"),
        ({"val/a/1.png": grey(), "val/a/2.png": grey()}, "no training images"),
        ({"a/1.png": grey(), "a/2.gif": b"GIF89a"}, "choose one size for all"),
        ({"a/1.png": grey(), "a/labels.csv": b"x"}, "called metadata.csv"),
        ({"a/1.png": grey(), "a/more.zip": b"PK\x03\x04"}, "another archive, a zip"),
        ({"a/1.png": grey(), "metadata.csv": b"file_name,note"}, "has no row"),
        ({"a/1.png": grey()}, "two or more"),
        (
            {"a/1.png": grey(0, (257, 8)), "a/2.png": grey(0, (257, 8))},
            "at most 256 are accepted on each side: choose",
        ),
        (
            {"a/1.png": grey(0, (8, 257)), "a/2.png": grey(0, (8, 257))},
            "at most 256 are accepted on each side: choose",
        ),
        ({"a/1.png": grey(0, (3, 8)), "a/2.png": grey(0, (3, 8))}, "4 to 256 pixels"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, contents: Contents, sentence: str) -> None:
    with pytest.raises(InvalidDataset, match=sentence):
        read(tmp_path, contents)


def test_one_file_is_capped_in_size_and_ratio(tmp_path: Path) -> None:
    padded = encoded(PIXELS) + bytes(100_000)
    contents = {"a/1.png": padded, "a/2.png": encoded(PIXELS)}
    assert len(read(tmp_path, contents, Limits(image_ratio_free_bytes=len(padded))).train.labels) == 2
    with pytest.raises(InvalidDataset, match="too large"):
        read(tmp_path, contents)
    with pytest.raises(InvalidDataset, match="more than the 100,139 bytes"):
        read(tmp_path, contents, Limits(image_ratio_free_bytes=len(padded), image_file_bytes=len(padded) - 1))


def test_decoded_images_are_capped_together(tmp_path: Path) -> None:
    contents = {f"a/{i}.png": grey(0, (100, 100)) for i in range(5)}
    assert len(read(tmp_path, contents, Limits(uncompressed_bytes=50_000)).train.labels) == 5
    with pytest.raises(InvalidDataset, match="more than the 49999 bytes"):
        read(tmp_path, contents, Limits(uncompressed_bytes=49_999))


@pytest.mark.parametrize("file_format", ["PNG", "JPEG"])
def test_flipped_bits_inside_an_image_are_refused_or_read(tmp_path: Path, file_format: str) -> None:
    """The checksums of the zip are right here, so the decoder sees the damage."""
    whole = encoded(COLOURS, file_format)
    refused = 0
    for data in damaged_copies(whole, 200):
        try:
            read(tmp_path, {"a/1.png": data, "a/2.png": encoded(COLOURS)})
        except InvalidDataset:
            refused += 1
    assert refused > 20


def test_metadata_does_not_reach_the_records(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "Jane Doe"
    _, train, _ = read(tmp_path, {"a/1.png": encoded(PIXELS), "a/2.png": encoded(PIXELS, exif=exif)})
    np.testing.assert_array_equal(train.images[0], train.images[1])
