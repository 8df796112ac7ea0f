"""Images of several sizes are one offer; prepared ones keep their colour, and say where proportions changed."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from datalens_service.base.errors import InvalidDataset
from datalens_service.base.wording import Voice, spoken_to
from datalens_service.data import read_with_notices
from datalens_service.data.dataset import Upload
from datalens_service.data.intake.preparation.pictures import prepare_picture
from datalens_service.data.intake.untrusted.limits import PREPARE_LIMITS
from datalens_service.data.intake.untrusted.shapes import Shape, suggest_size
from datalens_service.data.intake.untrusted.validation_errors import UnusableFiles
from datalens_service.data.notices import NoticeCode
from datalens_service.data.preparation_settings import Colour, PrepareSettings
from datalens_service.services.dataset_declaration import DatasetForm

from .builders import encoded, random_images, write_npz, write_zip
from .uploads import table

RNG = np.random.default_rng(0)


def read(path: Path, **choices: Any) -> tuple[Upload, dict[NoticeCode, int]]:
    upload, notices = read_with_notices(path, DatasetForm.model_validate(choices).choices)
    return upload, {notice.code: notice.count for notice in notices}


def picture(width: int, height: int, *channels: int, file_format: str = "PNG") -> bytes:
    return encoded(Image.fromarray(RNG.integers(0, 256, (height, width, *channels), dtype=np.uint8)), file_format)


def photographs(count: int, split: str = "") -> dict[str, bytes]:
    sizes = ((80 + number % 120, 199 - number % 120) for number in range(count))
    return {f"{split}{'ab'[n % 2]}/{n}.jpg": picture(*size, 3, file_format="JPEG") for n, size in enumerate(sizes)}


def refusal(path: Path, **choices: Any) -> InvalidDataset:
    with pytest.raises(InvalidDataset) as caught:
        read(path, **choices)
    return caught.value


def test_mixed_sizes_are_one_offer_in_the_words_of_each_interface(tmp_path: Path) -> None:
    error = refusal(write_zip(tmp_path / "upload", photographs(150)))
    assert not isinstance(error, UnusableFiles)
    start = "Your 150 images have different sizes, 80 to 199 pixels: choose one size for all, for example 64, in "
    end = " at the upload, or by `datalens prepare` on your machine."
    for voice, option in (
        (Voice.REST, "prepare_size"),
        (Voice.PAGE, "“Size” (below “Prepare them”)"),
        (Voice.COMMAND_LINE, "--prepare-size"),
    ):
        with spoken_to(voice):
            assert error.detail == start + option + end


def test_images_of_both_splits_are_one_offer(tmp_path: Path) -> None:
    for name, train, test in (("a", 6, 4), ("b", 1, 4), ("c", 6, 1)):
        files = {**photographs(train, "train/"), **photographs(test, "test/")}
        path = write_zip(tmp_path / name, files)
        assert f"Your {train + test} images have different sizes" in refusal(path).detail


@pytest.mark.parametrize("make", ["NPZ", "Parquet"])
def test_arrays_and_tables_get_the_same_offer(tmp_path: Path, make: str) -> None:
    path = tmp_path / "upload"
    if make == "NPZ":
        images, others = random_images(4, 9, 9), random_images(2, 12, 9)
        write_npz(path, train_images=images, train_labels=[0, 1] * 2, test_images=others, test_labels=[0, 1])
    else:
        pictures = [picture(9, 9), picture(9, 12), picture(10, 9), *(picture(9, 9) for _ in range(3))]
        path.write_bytes(table(None, image=pictures, label=[0, 1] * 3))
    assert "Your 6 images have different sizes, 9 to 12 pixels: choose one size for all" in refusal(path).detail
    assert len(read(path, prepare_size="9")[0].train.labels) == (4 if make == "NPZ" else 6)


def test_photographs_are_offered_a_size_whatever_theirs_is(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "upload", {f"a/{n}.jpg": picture(1600, 1200, 3, file_format="JPEG") for n in range(2)})
    says = refusal(path).detail
    assert "Your 2 images measure 1,600 by 1,200 pixels, and at most 256 are accepted on each side" in says
    assert "for example 64x48" in says
    # A size is no reason to leave an image out.
    assert refusal(path, skip_unreadable=True).detail == says


def test_files_that_cannot_be_read_are_named_beside_the_offer(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "upload", {**photographs(6), "a/99.jpg": b"not an image"})
    error = refusal(path)
    assert isinstance(error, UnusableFiles)
    assert error.detail.startswith("Your 6 images have different sizes")
    assert error.detail.endswith("Other files cannot be read.")
    assert [file.name for file in error.bad_files] == ["a/99.jpg"]


@pytest.mark.parametrize(
    ("sizes", "suggested"),
    [
        ([(80, 199), (199, 80), (120, 120)], (64, 64)),
        ([(4000, 3000), (1600, 1200), (640, 480)], (64, 48)),
        ([(3000, 4000), (480, 640)], (48, 64)),
        ([(4000, 3000), (3000, 4000)], (64, 64)),
        ([(28, 28), (32, 32)], (28, 28)),
        ([(300, 290), (305, 300)], (64, 64)),
        ([(2000, 100), (2000, 101)], (64, 16)),
        ([(9, 9)], (9, 9)),
        ([(3, 200), (200, 3)], (4, 4)),
    ],
)
def test_a_size_is_suggested(sizes: list[tuple[int, int]], suggested: tuple[int, int]) -> None:
    assert suggest_size(Counter(Shape(*size, 3) for size in sizes)) == suggested


GREY: Mapping[str, bytes] = {
    "grey": picture(8, 8),
    "one bit": encoded(Image.fromarray(random_images(1, 8, 8)[0]).convert("1")),
    "grey with transparency": encoded(Image.fromarray(random_images(1, 8, 8)[0]).convert("LA")),
    "a palette of greys": encoded(Image.fromarray(random_images(1, 8, 8)[0]).convert("P")),
    "a grey GIF": picture(8, 8, file_format="GIF"),
}
COLOUR: Mapping[str, bytes] = {
    "RGB": picture(8, 8, 3),
    "RGBA": picture(8, 8, 4),
    "CMYK": encoded(Image.fromarray(random_images(1, 8, 8, 3)[0]).convert("CMYK"), "JPEG"),
    "a palette of colours": encoded(Image.fromarray(random_images(1, 8, 8, 3)[0]).convert("P")),
}


@pytest.mark.parametrize("kind", GREY)
def test_images_without_colour_stay_grey(tmp_path: Path, kind: str) -> None:
    path = write_zip(tmp_path / "upload", {"a/1.png": GREY["grey"], "b/2.png": GREY[kind]})
    assert read(path, prepare_size="8")[0].schema.channels == 1


@pytest.mark.parametrize("place", ["0", "9"])
@pytest.mark.parametrize("kind", COLOUR)
def test_colour_stays_colour_unless_grey_is_chosen(tmp_path: Path, kind: str, place: str) -> None:
    greys = {f"a/{n}.png": data for n, data in enumerate(GREY.values(), start=1)}
    path = write_zip(tmp_path / "upload", {**greys, f"a/{place}.png": COLOUR[kind]})
    upload, notices = read(path, prepare_size="8")
    assert upload.schema.channels == 3
    assert upload.schema.preparation == PrepareSettings(width=8, height=8, colour=Colour.RGB)
    assert notices[NoticeCode.CHANNELS_CONVERTED] >= len(GREY)
    chosen, _ = read(path, prepare_size="8", prepare_colour="rgb")
    np.testing.assert_array_equal(upload.train.images, chosen.train.images)
    grey, _ = read(path, prepare_size="8", prepare_colour="grey")
    assert grey.schema.channels == 1


def test_a_test_split_has_the_mode_of_the_training_split(tmp_path: Path) -> None:
    for name, train, test, channels in (("a", GREY, COLOUR, 1), ("b", COLOUR, GREY, 3)):
        files = {f"train/x/{n}.png": data for n, data in enumerate(train.values())}
        path = write_zip(tmp_path / name, files | {f"test/x/{n}.png": data for n, data in enumerate(test.values())})
        upload, _ = read(path, prepare_size="8")
        chosen, _ = read(path, prepare_size="8", prepare_colour="grey" if channels == 1 else "rgb")
        assert upload.schema == chosen.schema
        assert upload.test is not None
        assert chosen.test is not None
        np.testing.assert_array_equal(upload.test.images, chosen.test.images)


@pytest.mark.parametrize("channels", [1, 3])
def test_arrays_keep_their_mode(tmp_path: Path, channels: int) -> None:
    images = random_images(4, 9, 9, channels)
    other = random_images(2, 9, 9, 4 - channels)
    path = tmp_path / "upload"
    write_npz(path, train_images=images, train_labels=[0, 1] * 2, test_images=other, test_labels=[0, 1])
    upload, notices = read(path, prepare_size="9")
    assert upload.schema.channels == channels
    assert notices[NoticeCode.CHANNELS_CONVERTED] == 2
    np.testing.assert_array_equal(upload.train.images, images)


@pytest.mark.parametrize(
    ("taken", "chosen", "fit", "changed"),
    [
        ((32, 16), (16, 16), "resize", True),
        ((32, 16), (16, 16), "crop", False),
        ((32, 16), (16, 8), "resize", False),
        ((4032, 3024), (64, 48), "resize", False),
        ((641, 480), (64, 48), "resize", False),
        ((660, 480), (64, 48), "resize", True),
        ((16, 16), (16, 16), "resize", False),
    ],
)
def test_changed_proportions_are_said(taken: tuple[int, int], chosen: tuple[int, int], fit: str, changed: bool) -> None:
    settings = PrepareSettings.model_validate({"width": chosen[0], "height": chosen[1], "fit": fit})
    _, changes = prepare_picture(picture(*taken), settings, PREPARE_LIMITS)
    assert (NoticeCode.PROPORTIONS_CHANGED in changes) == changed


def test_changed_proportions_are_counted(tmp_path: Path) -> None:
    sizes = [(16, 16), (32, 16), (16, 32), (32, 32)]
    path = write_zip(tmp_path / "upload", {f"a/{n}.png": picture(*size) for n, size in enumerate(sizes)})
    _, notices = read(path, prepare_size="16")
    assert (notices[NoticeCode.PROPORTIONS_CHANGED], notices[NoticeCode.RESIZED]) == (2, 3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("index", [b"MPF\0II*\0", b"MPF\0II*\1"], ids=["whole", "broken"])
def test_a_camera_s_jpeg_is_the_picture_it_shows(tmp_path: Path, index: bytes) -> None:
    """The index of pictures may be wrong, as where a program rewrote the first of them."""
    shown, behind = (Image.fromarray(image) for image in random_images(2, 16, 16, 3))
    several = encoded(shown, "MPO", save_all=True, append_images=[behind]).replace(b"MPF\0II*\0", index)
    plain = write_zip(tmp_path / "plain", {f"a/{n}.jpg": encoded(shown, "JPEG") for n in range(2)})
    path = write_zip(tmp_path / "upload", {f"a/{n}.jpg": several for n in range(2)})
    for choices in ({}, {"prepare_size": "16"}):
        upload, notices = read(path, **choices)
        assert NoticeCode.FRAME_SELECTED not in notices
        np.testing.assert_array_equal(upload.train.images, read(plain, **choices)[0].train.images)
