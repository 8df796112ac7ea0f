"""Whatever of an upload is read in a way its owner may not expect is said, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import ReadingChoices, read_source, read_upload, read_with_notices
from datalens_service.data.dataset import Upload
from datalens_service.data.intake.schema_inference import constant_rows, nearly_black_rows
from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS
from datalens_service.data.intake.untrusted.source import open_source
from datalens_service.data.notices import EXAMPLES, MESSAGES, Notice, NoticeCode, Notices
from datalens_service.data.privacy_units import UnitDeclaration

from .builders import Contents, encoded, random_images, write_npz, write_zip
from .uploads import IMAGES, LABELS, PNGS, UPLOADS, hugging_face_table, idx_files, shard, write_tar

Found = dict[str, tuple[int, tuple[str, ...]]]


def noticed(path: Path, **options: Any) -> Found:
    """All but that classes are small, which those of these tests are."""
    _, notices = read_with_notices(path, ReadingChoices(**options))
    found = {notice.code.value: (notice.count, notice.examples) for notice in notices}
    return {code: what for code, what in found.items() if code != "single_image_classes"}


def folder(path: Path, *names: str, extra: Contents | None = None) -> Path:
    return write_zip(path / "upload", {**dict(zip(names, PNGS, strict=False)), **(extra or {})})


@pytest.mark.parametrize("name", UPLOADS)
def test_a_plain_upload_has_no_notices(tmp_path: Path, name: str) -> None:
    assert noticed(UPLOADS[name](tmp_path / "upload")) == {}


def test_every_code_says_what_to_do() -> None:
    assert set(MESSAGES) == set(NoticeCode)


def test_a_validation_folder_is_ignored_and_said(tmp_path: Path) -> None:
    path = folder(tmp_path, "train/a/1.png", "train/b/2.png", "val/a/3.png", "val/b/4.png")
    assert noticed(path) == {"ignored_split": (2, ("val/a/3.png", "val/b/4.png"))}
    assert read_upload(path).test is None


def test_a_dot_in_a_folder_is_read_and_a_hidden_folder_is_said(tmp_path: Path) -> None:
    path = folder(tmp_path, "1.5mm/1.png", "2.0mm/2.png", ".5mm/3.png", ".5mm/4.png")
    assert read_upload(path).schema.class_names == ("1.5mm", "2.0mm")
    assert noticed(path) == {"ignored_files": (2, (".5mm/3.png", ".5mm/4.png"))}


def test_what_desktops_leave_behind_is_ignored_and_counted(tmp_path: Path) -> None:
    litter = {"__MACOSX/a/._1.png": PNGS[5], "a/._1.png": PNGS[6], "a/Thumbs.db": b"x", "a/.DS_Store": b"x"}
    names = ("__MACOSX/a/._1.png", "a/.DS_Store", "a/._1.png", "a/Thumbs.db")
    assert noticed(folder(tmp_path, "a/1.png", "b/2.png", extra=litter)) == {"ignored_files": (4, names)}
    more = {**litter, ".git/HEAD": b"x", "desktop.ini": b"x", "classes.json": b"x", "card.json": b"x"}
    path = folder(tmp_path, "a/1.png", "b/2.png", extra=more)
    assert read_upload(path).schema.class_names == ("a", "b")
    assert noticed(path)["ignored_files"][0] == len(more)


def test_other_formats_say_what_they_ignore(tmp_path: Path) -> None:
    table = {"data/train-0.parquet": hugging_face_table(), "data/validation-0.parquet": b"not read"}
    assert noticed(write_zip(tmp_path / "a", table)) == {"ignored_split": (1, ("data/validation-0.parquet",))}
    arrays = write_npz(tmp_path / "b", images=IMAGES, labels=LABELS, val_images=IMAGES, val_labels=LABELS)
    assert noticed(arrays) == {"ignored_arrays": (2, ("val_images", "val_labels"))}
    assert noticed(write_zip(tmp_path / "c", {**idx_files(), "README": b"x"})) == {"ignored_files": (1, ("README",))}
    records = {**{f"train/{name}": data for name, data in shard().items()}, "val/9.png": PNGS[0], "val/9.cls": b"0"}
    assert noticed(write_tar(tmp_path / "d", records)) == {"ignored_split": (1, ("val/9.png",))}


@pytest.mark.parametrize("name", ["values-train.parquet", "latest.parquet"])
def test_a_split_is_a_word_of_a_name(tmp_path: Path, name: str) -> None:
    path = write_zip(tmp_path / "upload", {name: hugging_face_table()})
    assert (len(read_upload(path).train.labels), noticed(path)) == (12, {})


def test_labels_from_one_make_no_empty_class(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "upload", images=IMAGES, labels=LABELS + 1)
    assert read_upload(path).schema.class_names == ("1", "2", "3")
    assert noticed(path) == {"labels_renumbered": (3, ("1 is label 0", "2 is label 1", "3 is label 2"))}


def test_folders_whose_numbers_are_not_their_labels_are_said(tmp_path: Path) -> None:
    path = folder(tmp_path, "1/1.png", "2/2.png", "10/3.png")
    assert noticed(path) == {"labels_renumbered": (3, ("1 is label 0", "2 is label 1", "10 is label 2"))}
    named = noticed(path, class_names=("one", "two", "ten"))
    assert named == {"classes_renamed": (3, ("1 is named one", "2 is named two", "10 is named ten"))}
    assert noticed(path, class_names=("10", "2", "1")) == {
        "labels_renumbered": (3, ("1 is label 2", "2 is label 1", "10 is label 0"))
    }


def test_masks_of_zeros_and_ones_are_nearly_black(tmp_path: Path) -> None:
    masks = random_images(12, 8, 8) % 2
    masks[3] = 0
    for kind in (np.uint8, np.int64):
        found = noticed(write_npz(tmp_path / kind.__name__, images=masks.astype(kind), labels=LABELS))
        assert found["nearly_black"][0] == 12
        assert found["constant_images"] == (1, ("image 3",))
    as_floats = noticed(write_npz(tmp_path / "float", images=masks.astype(np.float32), labels=LABELS))
    assert "nearly_black" not in as_floats
    assert "Multiply masks of 0 and 1 by 255" in MESSAGES[NoticeCode.NEARLY_BLACK]


def test_rows_are_the_same_whatever_the_size_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    images = random_images(50, 4, 4, 3)
    images[[3, 17]] = 7
    images[[17, 30], 0, 0] = 9
    images[40] //= 32
    whole = constant_rows(images), nearly_black_rows(images)
    monkeypatch.setattr("datalens_service.data.intake.schema_inference._BLOCK_BYTES", 3 * images[0].nbytes)
    np.testing.assert_array_equal(constant_rows(images), [3])
    np.testing.assert_array_equal(nearly_black_rows(images), [17, 40])
    np.testing.assert_array_equal(whole[0], [3])
    np.testing.assert_array_equal(whole[1], [17, 40])


def test_repeated_images_are_said(tmp_path: Path) -> None:
    images = random_images(12, 8, 8)
    images[7:9] = images[2]
    path = write_npz(tmp_path / "upload", images=images, labels=LABELS)
    assert noticed(path) == {
        "repeated_images": (2, ("image 7", "image 8")),
        # Labels are the row modulo 3, so that of image 8 is that of image 2.
        "conflicting_labels": (1, ("image 7",)),
    }


TURNS = {
    1: lambda image: image,
    2: np.fliplr,
    3: lambda image: np.rot90(image, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda image: np.rot90(image, -1),
    7: lambda image: np.rot90(np.transpose(image), 2),
    8: lambda image: np.rot90(image, 1),
}


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_exif_orientation_is_applied_and_said(tmp_path: Path, kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.zeros((8, 16), np.uint8)
    stored[:4, :12] = 255
    files = {f"a/{i}.png": encoded(Image.fromarray(stored), kind, exif=exif) for i in range(2)}
    upload, notices = read_with_notices(write_zip(tmp_path / "upload", files))
    shown = TURNS[orientation](stored)
    assert upload.train.images.shape[1:3] == shown.shape
    assert np.abs(upload.train.images[0, ..., 0].astype(int) - shown).max() < 64
    found = {notice.code: notice.examples for notice in notices}
    applied = found.get(NoticeCode.ORIENTATION_APPLIED)
    assert applied == (None if orientation == 1 else ("a/0.png", "a/1.png"))


def test_exif_that_cannot_be_read_turns_nothing(tmp_path: Path) -> None:
    broken = encoded(Image.fromarray(IMAGES[0]), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    path = write_zip(tmp_path / "upload", {"a/1.jpg": broken, "a/2.jpg": encoded(Image.fromarray(IMAGES[1]), "JPEG")})
    assert "orientation_applied" not in noticed(path)


def without_constants(path: Path, units: UnitDeclaration | None = None) -> tuple[Upload, Found]:
    with open_source(path, DEFAULT_LIMITS) as source:
        _, upload = read_source(source, ReadingChoices(units=units, leave_out_constant_images=True))
        return upload, {notice.code.value: (notice.count, notice.examples) for notice in source.notices.collected()}


def test_constant_images_are_left_out_where_that_is_asked(tmp_path: Path) -> None:
    images = random_images(12, 8, 8)
    images[[4, 6]] = 0
    groups = np.arange(12) // 2
    path = write_npz(tmp_path / "upload", images=images, labels=LABELS, groups=groups)
    upload, found = without_constants(path, UnitDeclaration(records=2))
    assert found == {"constant_images_left_out": (2, ("image 4", "image 6"))}
    np.testing.assert_array_equal(upload.train.images[..., 0], np.delete(images, [4, 6], axis=0))
    np.testing.assert_array_equal(upload.train.labels, np.delete(LABELS, [4, 6]))
    assert (upload.schema.num_units, len(upload.train.unit_ids)) == (6, 10)


def test_nothing_but_constant_images_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "upload", images=np.zeros((4, 8, 8), np.uint8), labels=np.arange(4))
    with pytest.raises(InvalidDataset, match="single colour"):
        without_constants(path)


def test_examples_are_few_short_and_printable() -> None:
    notices = Notices()
    notices.add(NoticeCode.IGNORED_FILES, ["x" * 5000, "a\x1b[31m", *map(str, range(9))])
    (notice,) = notices.collected()
    assert (notice.count, len(notice.examples), len(notice.examples[0])) == (11, EXAMPLES, 200)
    assert notice.examples[1] == "a?[31m"
    for examples in (["\x1b[31m"], ["x" * 5000], ["x"] * (EXAMPLES + 1)):
        with pytest.raises(ValidationError):
            Notice.model_validate({"code": "ignored_files", "count": 1, "examples": examples})


def test_nothing_counted_is_no_notice() -> None:
    notices = Notices()
    notices.add(NoticeCode.IGNORED_FILES, [])
    notices.count(NoticeCode.SHARES_RECORDS, 0)
    assert notices.collected() == ()
