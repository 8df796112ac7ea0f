"""`datalens prepare`: many kinds of images become one NPZ."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import ReadingChoices, UnitDeclaration, read_upload, read_with_notices
from datalens_service.data.notices import NoticeCode
from datalens_service.data.preparation_settings import Colour, Fit, PrepareSettings
from tests.data.dicom_files import dicom

Run = Callable[..., Any]
MODES = ("1", "L", "P", "RGB", "RGBA", "CMYK")


def _save(path: Path, mode: str = "RGB", seed: int = 0, size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


@pytest.mark.parametrize("colour", ["grey", "rgb"])
def test_modes_formats_and_sizes_become_one(datalens_json: Run, tmp_path: Path, colour: str) -> None:
    for number, mode in enumerate(MODES):
        _save(tmp_path / "in" / "a" / f"{mode}.tif", mode, number, (300 + number, 40))
    for suffix in ("png", "jpg", "bmp", "webp"):
        _save(tmp_path / "in" / "b" / f"x.{suffix}", size=(16, 16))
    answer = datalens_json("prepare", tmp_path / "in", "--out", "o.npz", "--size", 16, "--colour", colour)
    upload = read_upload(Path(answer["file"]))
    channels = 1 if colour == "grey" else 3
    assert upload.train.images.shape == (10, 16, 16, channels)
    assert (upload.schema.class_names, answer["images"]) == (("a", "b"), 10)
    counts = {notice["code"]: notice["count"] for notice in answer["notices"]}
    assert counts["resized"] == len(MODES)
    assert counts["transparency_removed"] == 1


def test_16_bit_needs_a_named_window(datalens: Run, datalens_json: Run, tmp_path: Path) -> None:
    deep = np.array([[0, 1000], [2000, 60000]], dtype=np.uint16).repeat(8, 0).repeat(8, 1)
    for name in ("a/1.png", "b/2.png"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        Image.fromarray(deep).save(tmp_path / "in" / name)
    call = ("prepare", tmp_path / "in", "--out", "o.npz", "--size", 16)
    refused = datalens(*call, "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"]["bad_files"][0]["name"] == "a/1.png"
    answer = datalens_json(*call, "--window", 0, 2000)
    image = read_upload(Path(answer["file"])).train.images[0, :, :, 0]
    assert image[::8, ::8].tolist() == [[0, 128], [255, 255]]


def test_an_image_depends_on_no_other(datalens_json: Run, tmp_path: Path) -> None:
    for number in range(4):
        _save(tmp_path / "in" / "ab"[number % 2] / f"{number}.png", seed=number)
    call = ("prepare", tmp_path / "in", "--size", 16, "--fit", "crop")
    first = read_upload(Path(datalens_json(*call, "--out", "1.npz")["file"])).train.images
    Image.new("RGBA", (900, 7), "red").save(tmp_path / "in" / "a" / "0.png")
    second = read_upload(Path(datalens_json(*call, "--out", "2.npz")["file"])).train.images
    assert (first != second).any(axis=(1, 2, 3)).tolist() == [True, False, False, False]


def test_the_file_says_how_it_was_prepared(datalens_json: Run, tmp_path: Path) -> None:
    for seed, name in enumerate(("a/1.png", "b/2.png")):
        _save(tmp_path / "in" / name, seed=seed)
    answer = datalens_json("prepare", tmp_path / "in", "--out", "o.npz", "--size", "16x12", "--fit", "crop")
    upload, notices = read_with_notices(Path(answer["file"]))
    assert upload.schema.preparation == PrepareSettings(width=16, height=12, fit=Fit.CROP, colour=Colour.RGB)
    assert (upload.schema.width, upload.schema.height) == (16, 12)
    assert [notice.code for notice in notices] == [NoticeCode.SINGLE_IMAGE_CLASSES]
    with np.load(answer["file"]) as arrays:
        reduced = {**arrays, "train_images": arrays["train_images"][:, ::2, ::2]}
    for wrong in (reduced, reduced | {"preparation": np.array("{}")}, reduced | {"preparation": np.array(8)}):
        np.savez(tmp_path / "wrong.npz", **wrong)
        with pytest.raises(InvalidDataset, match="array preparation"):
            read_upload(tmp_path / "wrong.npz")


def test_damaged_and_huge_files_are_named_and_links_are_refused(datalens: Run, tmp_path: Path) -> None:
    _save(tmp_path / "in" / "a" / "good.png")
    good = (tmp_path / "in" / "a" / "good.png").read_bytes()
    (tmp_path / "in" / "a" / "cut.png").write_bytes(good[: len(good) // 2])
    Image.new("1", (20000, 20000)).save(tmp_path / "in" / "a" / "huge.png")

    def bad_files() -> set[str]:
        result = datalens("prepare", tmp_path / "in", "--out", tmp_path / "o.npz", "--size", 16, "--json")
        assert not (tmp_path / "o.npz").exists()
        return {file["name"] for file in json.loads(result.stdout)["error"]["bad_files"]}

    assert bad_files() == {"a/cut.png", "a/huge.png"}
    (tmp_path / "in" / "a" / "link.png").symlink_to("good.png")
    assert bad_files() == {"a/link.png"}


def test_dicom_files_name_their_window_frame_and_patient(datalens_json: Run, tmp_path: Path) -> None:
    frames = np.arange(2 * 64, dtype=np.int16).reshape(2, 8, 8)
    for name, patient in (("a/1.dcm", "ann"), ("a/2.dcm", "bob"), ("b/3.dcm", "ann")):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(dicom(frames, PatientID=patient, RescaleIntercept="-64", RescaleSlope="1"))
    call = ("prepare", tmp_path / "in", "--out", "o.npz", "--size", 8, "--frame", 2)
    answer = datalens_json(*call, "--window", -10, 63)
    upload = read_upload(Path(answer["file"]), ReadingChoices(units=UnitDeclaration(records=2)))
    assert upload.schema.num_units == 2
    expected = np.rint(255 * np.clip((frames[1] - 64 + 10) / 73, 0, 1))
    np.testing.assert_array_equal(upload.train.images[2, :, :, 0], expected)
    counts = {notice["code"]: notice["count"] for notice in answer["notices"]}
    assert (counts["window_applied"], counts["frame_selected"]) == (3, 3)


def test_the_file_knows_persons_of_both_splits_without_their_names(datalens_json: Run, tmp_path: Path) -> None:
    for split, persons in (("train", ("ada", "Ada", "bob", "cem")), ("test", ("dan", "ADA", "bob", "dan"))):
        for number, person in enumerate(persons):
            seed = number + 4 * (split == "test")
            _save(tmp_path / "in" / split / "ab"[number % 2] / person / f"{number}.png", seed=seed)
    answer = datalens_json("prepare", tmp_path / "in", "--out", "o.npz", "--size", 16)
    said = {notice["code"]: notice["count"] for notice in answer["notices"]}
    assert (said["persons_in_both"], said["keys_joined"]) == (2, 1)
    with np.load(answer["file"]) as arrays:
        assert {name for name, values in arrays.items() if values.dtype.kind == "U"} == {
            "class_names", "unit", "preparation",
        }  # fmt: skip
    upload, notices = read_with_notices(Path(answer["file"]), ReadingChoices(units=UnitDeclaration(records=2)))
    assert upload.test is not None
    assert upload.test.is_of_persons_in(upload.train).sum() == 2
    assert upload.schema.num_units == 3
    (both,) = (notice for notice in notices if notice.code == "persons_in_both")
    assert sorted(both.examples)[0].startswith("a group without a name: ")


def test_a_photograph_of_12_megapixels_is_prepared(datalens_json: Run, tmp_path: Path) -> None:
    for name in ("a/1.jpg", "b/2.jpg"):
        _save(tmp_path / "in" / name, size=(4000, 3000))
    answer = datalens_json("prepare", tmp_path / "in", "--out", "o.npz", "--size", 64)
    assert read_upload(Path(answer["file"])).train.images.shape == (2, 64, 64, 3)
