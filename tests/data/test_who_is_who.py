"""Whatever an upload says of persons is read, refused or said, in every format; none is protected as single images."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import ReadingChoices, read_upload, read_with_notices
from datalens_service.data.intake.untrusted.validation_errors import UnusableFiles
from datalens_service.data.privacy_units import UnitDeclaration

from .builders import write_npz, write_zip
from .uploads import IMAGES, LABELS, PNGS, UPLOADS, idx_files, shard, table, write_bytes, write_tar

GROUPED = UnitDeclaration(records=6)
PERSONS = [f"p{number % 4}" for number in range(12)]


def table_zip(header: str, folder: Callable[[int], str] = lambda _: "") -> dict[str, bytes]:
    lines = [f"{folder(n)}{n}.png,{LABELS[n]},series{n},{PERSONS[n]}" for n in range(12)]
    lines = [",".join(line.split(",")[: header.count(",") + 1]) for line in lines]
    files = {f"{folder(n)}{n}.png": png for n, png in enumerate(PNGS)}
    return {"metadata.csv": "\n".join([header, *lines]).encode(), **files}


def shard_with(member: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for number, png in enumerate(PNGS):
        files |= {f"{number}.png": png, f"{number}.cls": str(LABELS[number]).encode()}
        files[f"{number}.json"] = json.dumps({member: PERSONS[number], "caption": "x"}).encode()
    return files


GROUPINGS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "npz patients": (lambda path: write_npz(path, images=IMAGES, labels=LABELS, patients=PERSONS), "patient"),
    "npz PatientID": (lambda path: write_npz(path, images=IMAGES, labels=LABELS, PatientID=PERSONS), "patient"),
    "npz train_patient": (lambda path: write_npz(path, images=IMAGES, labels=LABELS, train_patient=PERSONS), "patient"),
    "parquet": (lambda path: write_bytes(path, table(None, image=PNGS, label=LABELS, patient=PERSONS)), "patient"),
    "webdataset": (lambda path: write_tar(path, shard_with("patient")), "patient"),
    "webdataset group": (lambda path: write_tar(path, shard_with("group")), "group"),
}


@pytest.mark.parametrize("name", GROUPINGS)
def test_persons_are_units(tmp_path: Path, name: str) -> None:
    build, word = GROUPINGS[name]
    path = build(tmp_path / "upload")
    with pytest.raises(InvalidDataset, match="records_per_unit"):
        read_upload(path)
    schema = read_upload(path, ReadingChoices(units=GROUPED)).schema
    assert (schema.num_units, schema.unit, schema.records_per_unit) == (4, word, 6)


@pytest.mark.parametrize(
    "build",
    [
        lambda path: write_npz(path, images=IMAGES, labels=LABELS, mrn=PERSONS),
        lambda path: write_bytes(path, table(None, image=PNGS, label=LABELS, mrn=PERSONS)),
    ],
)
def test_what_may_be_persons_is_said_and_may_be_declared(tmp_path: Path, build: Callable[[Path], Path]) -> None:
    path = build(tmp_path / "upload")
    _, notices = read_with_notices(path)
    assert [(one.code.value, one.examples) for one in notices if "person" in one.code] == [("person_column", ("mrn",))]
    assert read_upload(path, ReadingChoices(units=GROUPED, group_column="mrn")).schema.num_units == 4


@pytest.mark.parametrize("name", UPLOADS)
@pytest.mark.parametrize("choice", ["group_column", "label_column"])
def test_a_declared_column_that_is_not_there_is_refused(tmp_path: Path, name: str, choice: str) -> None:
    with pytest.raises(InvalidDataset, match=f"{choice}|called mrn"):
        read_upload(UPLOADS[name](tmp_path / "upload"), ReadingChoices.model_validate({choice: "mrn"}))


def test_folders_of_persons_beside_a_table_need_a_column(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", table_zip("file_name,label", lambda n: f"patient_{n % 4}/"))
    with pytest.raises(UnusableFiles, match="Add a column patient") as refused:
        read_upload(path)
    assert [file.name for file in refused.value.bad_files] == [f"patient_{n}/" for n in range(4)]
    assert read_upload(path, ReadingChoices(ignore_groups=True)).schema.num_units == 12


@pytest.mark.parametrize("content", [b"[]", b"\xff", b"[" * 2**15, b" " * 2**21])
def test_a_file_that_names_no_classes_is_not_taken_for_a_label(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InvalidDataset, match="must name the classes"):
        read_upload(write_tar(tmp_path / "a.tar", {**shard(), "__classes.json__": content}))


def test_two_columns_of_groups_are_never_guessed(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", table_zip("file_name,label,group,patient_id"))
    with pytest.raises(UnusableFiles, match="Several columns may hold groups"):
        read_upload(path)
    declared = ReadingChoices(units=GROUPED, group_column="patient_id")
    assert read_upload(path, declared).schema.num_units == 4


def test_a_person_is_one_in_all_tables(tmp_path: Path) -> None:
    """pandas writes 1.0 for 1 once a cell of the column is empty."""
    files = {f"{folder}/{n}.png": PNGS[n + 6 * (folder == "b")] for folder in "ab" for n in range(6)}
    rows = {"a": ("1", "2"), "b": ("1.0", "2.0")}
    for folder, persons in rows.items():
        lines = [f"{n}.png,{'cat' if n < 3 else 'dog'},{persons[n % 2]}" for n in range(6)]
        files[f"{folder}/metadata.csv"] = "\n".join(["file_name,label,patient", *lines]).encode()
    path = write_zip(tmp_path / "a.zip", files)
    assert read_upload(path, ReadingChoices(units=GROUPED)).schema.num_units == 2


def test_a_table_without_a_line_of_names_tells_no_record(tmp_path: Path) -> None:
    content = {"0.png": PNGS[0], "metadata.csv": b"0.png,cat,Smith^John\n1.png,dog,Doe^Jane\n"}
    with pytest.raises(UnusableFiles) as refused:
        read_upload(write_zip(tmp_path / "a.zip", content))
    assert "Smith" not in refused.value.detail
    assert "Smith" in refused.value.bad_files[0].name


def read_labels(path: Path, **choices: Any) -> tuple[list[int], tuple[str, ...]]:
    upload = read_upload(path, ReadingChoices(**choices))
    return upload.train.labels.tolist(), upload.schema.class_names


def test_numbers_of_a_file_that_names_its_classes_are_places(tmp_path: Path) -> None:
    """Folders 0 to 11 in the order of words, as Hugging Face's imagefolder numbers them."""
    names = sorted(map(str, range(12)))
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": names}}
    numbers = list(range(12))
    path = write_bytes(tmp_path / "a.parquet", table(features, image=PNGS, label=numbers))
    assert read_labels(path) == (numbers, tuple(names))
    npz = write_npz(tmp_path / "a.npz", images=IMAGES, labels=numbers, class_names=names)
    assert read_labels(npz) == (numbers, tuple(names))
    ordered = tuple(map(str, range(12)))
    assert read_labels(npz, class_names=ordered) == ([int(name) for name in names], ordered)
    letters = tuple("lkjihgfedcba")
    assert read_labels(npz, class_names=letters) == (numbers, letters)


@pytest.mark.parametrize(
    ("words", "classes"), [(("1.0", "2.0", "10.0"), ("1.0", "10.0", "2.0")), (("10", "9", "1"), ("1", "9", "10"))]
)
def test_words_that_look_like_numbers_are_words(
    tmp_path: Path, words: tuple[str, ...], classes: tuple[str, ...]
) -> None:
    labels = [words[label] for label in LABELS]
    found = [classes.index(word) for word in labels]
    for path in (
        write_npz(tmp_path / "a.npz", images=IMAGES, labels=labels),
        write_bytes(tmp_path / "a.parquet", table(None, image=PNGS, label=labels)),
    ):
        assert read_labels(path) == (found, classes)
    assert read_labels(path, class_names=("a", "b", "c")) == (found, ("a", "b", "c"))


def test_texts_are_of_one_kind_in_all_splits(tmp_path: Path) -> None:
    names = ["train/1", "train/2", "train/unknown", "test/1", "test/2", "test/1"]
    files = {f"{name}/{number}.png": PNGS[number] for number, name in enumerate(names)}
    upload = read_upload(write_zip(tmp_path / "a.zip", files))
    assert upload.schema.class_names == ("1", "2", "unknown")
    assert upload.test is not None
    assert upload.test.labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize("name", ["croissant", "license plate", "readme"])
def test_an_image_is_no_note_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    files = {f"{folder}/{folder}-{n}.png": PNGS[n + 4 * (folder == "x")] for folder in (name, "x") for n in range(4)}
    upload = read_upload(write_zip(tmp_path / "a.zip", files))
    assert (upload.schema.class_names, upload.schema.num_units) == (tuple(sorted((name, "x"))), 8)


def test_splits_are_folders_around_tables_and_shards(tmp_path: Path) -> None:
    def part(start: int, stop: int) -> bytes:
        return table(None, image=PNGS[start:stop], label=[int(label) for label in LABELS[start:stop]])

    files = {"d/train/0.parquet": part(0, 6), "d/test/0.parquet": part(6, 9), "d/validation/0.parquet": part(9, 12)}
    shard = {}
    for number, png in enumerate(PNGS):
        split = "train" if number < 6 else "test" if number < 9 else "val"
        shard |= {f"d/{split}/{number}.png": png, f"d/{split}/{number}.cls": str(LABELS[number]).encode()}
    for path in (write_zip(tmp_path / "a.zip", files), write_tar(tmp_path / "a.tar", shard)):
        upload = read_upload(path)
        assert upload.test is not None
        assert (len(upload.train.labels), len(upload.test.labels)) == (6, 3)


def test_what_desktops_add_hides_no_format(tmp_path: Path) -> None:
    litter = {f"__MACOSX/._{number}.x": b"\0\5\26\7" for number in range(9)} | {".DS_Store": b"x"}
    images = np.ascontiguousarray(IMAGES)
    tables = {"t/a.parquet": table(None, image=PNGS, label=LABELS), "__MACOSX/t/._a.parquet": b"\0\5\26\7"}
    for files in (tables, idx_files()):
        upload = read_upload(write_zip(tmp_path / "a.zip", {**files, **litter}))
        assert len(upload.train.labels) == len(images)
