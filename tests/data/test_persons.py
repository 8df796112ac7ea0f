"""Persons are read of every split by one reader: those in both, those with several spellings, those of no name."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import InvalidDataset, PersonsInBothSplits
from datalens_service.data import ReadingChoices, read_with_notices
from datalens_service.data.dataset import NOBODY, Upload
from datalens_service.data.intake.stored_dataset import load_dataset, save_dataset
from datalens_service.data.intake.untrusted.validation_errors import UnusableFiles
from datalens_service.data.notices import Notice
from datalens_service.data.preparation_settings import PrepareSettings
from datalens_service.data.privacy_units import UnitDeclaration, identities

from .builders import random_images, write_npz, write_zip
from .dicom_files import dicom
from .uploads import IMAGES, LABELS, PNGS, table, write_tar

GROUPED = UnitDeclaration(records=6)
TRAIN = ["ada", "bob", "cem", "ada", "bob", "cem"]
TEST = ["cem", "dan", "cem", "eve", "ada", "dan"]
SCANS = random_images(12, 8, 8, seed=7)

Build = Callable[[Path, Sequence[str], Sequence[str]], Path]


def with_table(path: Path, train: Sequence[str], test: Sequence[str], *, label: bool = True) -> Path:
    """Class folders beside one table, which has the labels, too, or persons alone."""
    files, lines = {}, [["file_name", "label", "patient"] if label else ["file_name", "patient"]]
    for split, persons, first in (("train", train, 0), ("test", test, 6)):
        for number, person in enumerate(persons):
            name = f"{split}/{LABELS[first + number]}/{number}.png"
            files[name] = PNGS[first + number]
            lines.append([name, *([str(LABELS[first + number])] if label else []), person])
    buffer = io.StringIO()
    csv.writer(buffer).writerows(lines)
    return write_zip(path, {**files, "metadata.csv": buffer.getvalue().encode()})


def in_folders(path: Path, train: Sequence[str], test: Sequence[str]) -> Path:
    """class/patient/image in both splits."""
    splits = (("train", train, 0), ("test", test, 6))
    return write_zip(
        path,
        {
            f"{split}/{LABELS[first + n]}/{person}/{n}.png": PNGS[first + n]
            for split, persons, first in splits
            for n, person in enumerate(persons)
        },
    )


def in_dicom(path: Path, train: Sequence[str], test: Sequence[str]) -> Path:
    splits = (("train", train, 0), ("test", test, 6))
    return write_zip(
        path,
        {
            f"{split}/c{LABELS[first + n]}/{n}.dcm": dicom(SCANS[first + n], PatientID=person, PatientName="")
            for split, persons, first in splits
            for n, person in enumerate(persons)
        },
    )


def in_parquet(path: Path, train: Sequence[str], test: Sequence[str]) -> Path:
    return write_zip(
        path,
        {
            f"data/{split}-0.parquet": table(
                None, image=PNGS[first : first + 6], label=LABELS[first : first + 6], patient=list(persons)
            )
            for split, persons, first in (("train", train, 0), ("test", test, 6))
        },
    )


def in_webdataset(path: Path, train: Sequence[str], test: Sequence[str]) -> Path:
    files: dict[str, bytes] = {}
    for split, persons, first in (("train", train, 0), ("test", test, 6)):
        for number, person in enumerate(persons):
            key = f"{split}/{number:04}"
            files |= {f"{key}.png": PNGS[first + number]}
            files[f"{key}.json"] = json.dumps({"label": int(LABELS[first + number]), "patient": person}).encode()
    return write_tar(path, files)


def npz(word: str = "groups") -> Build:
    def build(path: Path, train: Sequence[str], test: Sequence[str]) -> Path:
        arrays = {f"train_{word}": np.array(train), f"test_{word}": np.array(test)}
        images = {"train_images": IMAGES[:6], "test_images": IMAGES[6:]}
        return write_npz(path, **images, train_labels=LABELS[:6], test_labels=LABELS[6:], **arrays)

    return build


BUILDERS: dict[str, Build] = {
    "metadata.csv": with_table,
    "metadata.csv beside class folders": lambda *given: with_table(*given, label=False),
    "folders": in_folders,
    "dicom": in_dicom,
    "parquet": in_parquet,
    "webdataset": in_webdataset,
    "npz": npz(),
    "npz patients": npz("patient"),
}


def read(path: Path, **choices: Any) -> tuple[Upload, dict[str, Notice]]:
    prepared = {"preparation": PrepareSettings(width=8, height=8)} if path.name.endswith("dicom") else {}
    upload, notices = read_with_notices(path, ReadingChoices(**{"units": GROUPED, **prepared, **choices}))
    return upload, {notice.code.value: notice for notice in notices}


def check_shared(upload: Upload) -> None:
    """Images 0, 2 and 4 of the test split are of persons with training images, whatever order they were read in."""
    assert upload.test is not None
    known = [*IMAGES[6:], *SCANS[6:]]
    shared = upload.test.images[upload.test.is_of_persons_in(upload.train)]
    places = {place % 6 for place, image in enumerate(known) for one in shared if np.array_equal(image, one[:, :, 0])}
    assert (len(shared), places) == (3, {0, 2, 4})


@pytest.fixture(params=BUILDERS)
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    name = str(request.param)
    return lambda train=TRAIN, test=TEST: BUILDERS[name](tmp_path / name.replace(" ", "-"), train, test)


def test_a_person_in_both_splits_is_said_and_known(build: Callable[..., Path]) -> None:
    upload, notices = read(build())
    check_shared(upload)
    said = notices["persons_in_both"]
    assert said.count == 2
    assert said.examples == ("cem: 2 training images and 2 test images", "ada: 2 training images and 1 test image")


def test_a_public_test_split_must_not_show_persons_of_training(build: Callable[..., Path]) -> None:
    with pytest.raises(PersonsInBothSplits, match="must not show persons") as refused:
        read(build(), public_test=True)
    assert isinstance(refused.value, UnusableFiles)
    assert [file.name.partition(":")[0] for file in refused.value.bad_files] == ["cem", "ada"]
    assert not {"2", "cem", "ada"} & set(refused.value.detail.split()), "the sentence tells nothing of the records"


def test_other_persons_may_be_a_public_test_split(build: Callable[..., Path]) -> None:
    upload, notices = read(build(test=["dan", "eve"] * 3), public_test=True)
    assert upload.schema.test_is_public
    assert not {"persons_in_both", "test_persons_unknown"} & notices.keys()


def test_persons_are_known_where_single_images_are_protected(build: Callable[..., Path]) -> None:
    upload, notices = read(build(), units=None, ignore_groups=True)
    assert upload.schema.groups_ignored
    assert (upload.train.units, upload.schema.num_units) == (None, 6)
    check_shared(upload)
    assert notices["persons_in_both"].count == 2


def test_persons_with_one_training_image_each_are_known(build: Callable[..., Path]) -> None:
    train = [f"p{number}" for number in range(6)]
    upload, notices = read(build(train, ["p0", *"abcde"]), units=None)
    assert (upload.train.units, upload.schema.unit) == (None, "record")
    assert notices["persons_in_both"].examples == ("p0: 1 training image and 1 test image",)


def test_spellings_of_one_key_are_one_person(build: Callable[..., Path]) -> None:
    train = ["P-A", "p-a", "P-A ", "P-B", "P-B", "P-B"]
    upload, notices = read(build(train, ["p-A", *"vwxyz"]))
    assert upload.schema.num_units == 2
    # Unpacked names of folders and IDs of DICOM have no blanks at their ends.
    assert notices["keys_joined"].examples[0].endswith(": 4 images")
    assert {"P-A", "p-a"} < set(notices["keys_joined"].examples[0].partition(":")[0].split(" = "))
    assert notices["persons_in_both"].count == 1
    with pytest.raises(InvalidDataset, match="more than the declared 2"):
        read(build(train, list("uvwxyz")), units=UnitDeclaration(records=2))


def test_keys_that_differ_in_punctuation_are_said(build: Callable[..., Path]) -> None:
    upload, notices = read(build(["P-01", "P_1", "p1", "1-12", "11-2", "x"], list("uvwxyz")))
    assert upload.schema.num_units == 6
    assert notices["keys_alike"].count == 1
    assert set(notices["keys_alike"].examples[0].partition(":")[0].split(" = ")) == {"P-01", "P_1", "p1"}


@pytest.mark.parametrize("key", ["ANONYMOUS", "0", "P-17"])
def test_one_key_for_all_is_a_question(build: Callable[..., Path], key: str) -> None:
    path = build([key] * 6, [key] * 6)
    with pytest.raises(InvalidDataset, match="All 6 training images have the same"):
        read(path)
    upload, notices = read(path, units=None, ignore_groups=True)
    assert upload.schema.num_units == 6
    assert notices.keys() & {"persons_in_both", "placeholder_keys"}


def test_keys_of_nobody_are_said_and_are_no_person(build: Callable[..., Path]) -> None:
    upload, notices = read(build(["anonymous", "ANONYMIZED", "anonymous", *"abc"], ["anonymous", *"uvwxy"]))
    assert notices["placeholder_keys"].count == 2
    assert notices["placeholder_keys"].examples[0] == "anonymous: 3 images"
    assert upload.train.groups is not None
    assert (upload.train.groups == NOBODY).sum() == 3
    assert "persons_in_both" not in notices
    assert "test_persons_unknown" in notices


def test_files_of_no_patient_are_a_question(tmp_path: Path) -> None:
    path = in_dicom(tmp_path / "dicom", [""] * 6, [""] * 6)
    with pytest.raises(UnusableFiles, match="as anonymised exports do") as refused:
        read(path, units=None)
    assert len(refused.value.bad_files) == 6
    assert read(path, units=None, ignore_groups=True)[0].schema.num_units == 6


def test_test_images_of_unknown_persons_are_said(tmp_path: Path) -> None:
    images = {"train_images": IMAGES[:6], "test_images": IMAGES[6:]}
    path = write_npz(tmp_path / "a", **images, train_labels=LABELS[:6], test_labels=LABELS[6:], groups=np.array(TRAIN))
    upload, notices = read(path)
    assert notices["test_persons_unknown"].count == 6
    assert upload.test is not None
    assert not upload.test.is_of_persons_in(upload.train).any()


@pytest.mark.parametrize(
    ("test_groups", "sentence"),
    [
        (np.arange(5), "exactly one group per test image"),
        (np.ones((6, 2)), "one per test image"),
    ],
)
def test_groups_of_test_images_are_checked(tmp_path: Path, test_groups: Any, sentence: str) -> None:
    images = {"train_images": IMAGES[:6], "test_images": IMAGES[6:], "groups": np.array(TRAIN)}
    labels = {"train_labels": LABELS[:6], "test_labels": LABELS[6:]}
    with pytest.raises(InvalidDataset, match=sentence):
        read(write_npz(tmp_path / "a", **images, **labels, test_groups=test_groups))


def test_one_patient_is_in_one_group_in_all_splits(tmp_path: Path) -> None:
    """A table must not tear a patient of the DICOM files into two persons, one in each split."""
    files = {f"train/{n % 2}/{n}.dcm": dicom(SCANS[n], PatientID=f"P{n % 3}") for n in range(6)}
    files |= {f"test/{n % 2}/{n}.dcm": dicom(SCANS[n + 6], PatientID="P0") for n in range(2)}
    lines = [f"{name},{'t' if name.startswith('test') else int(name.split('/')[2][0]) % 3}" for name in files]
    path = write_zip(tmp_path / "dicom", {**files, "metadata.csv": "\n".join(["file_name,patient", *lines]).encode()})
    with pytest.raises(UnusableFiles, match="has the patient ID of files that are in another group"):
        read(path)


def test_what_is_stored_knows_persons_of_both_splits(tmp_path: Path) -> None:
    upload, _ = read(npz()(tmp_path / "a", TRAIN, TEST))
    save_dataset(upload, tmp_path / "stored")
    check_shared(load_dataset(tmp_path / "stored"))


def test_a_split_stored_without_groups_still_opens(tmp_path: Path) -> None:
    """As versions before this one stored it: units of training records alone."""
    upload, _ = read(npz()(tmp_path / "a", TRAIN, TEST))
    save_dataset(upload, tmp_path / "stored")
    for split in ("train", "test"):
        (tmp_path / "stored" / f"{split}_groups.npy").unlink()
    stored = load_dataset(tmp_path / "stored")
    assert stored.test is not None
    assert stored.test.groups is None
    assert not stored.test.is_of_persons_in(stored.train).any()
    assert stored.train.groups is not None
    np.testing.assert_array_equal(stored.train.unit_ids, upload.train.unit_ids)


def test_a_key_with_one_spelling_has_the_identity_that_it_always_had() -> None:
    """Else its records could not be uploaded again, as their account was opened for other units."""
    known = [4586714429839665191, 7401784745787710708, 4251371040736459634]
    assert identities(["Ada", "p-17", " \u00c5 "]).tolist() == known


@pytest.mark.parametrize("name", ["date", "study date", "StudyDate", "time", "split", "fold", "source"])
def test_what_many_images_share_is_no_person(tmp_path: Path, name: str) -> None:
    values = ["2024-02-29", "2024-03-01", "20240302"]
    lines = [f"{number}.png,{LABELS[number]},{values[number % 3]}" for number in range(12)]
    files = {f"{number}.png": png for number, png in enumerate(PNGS)}
    table_of_days = "\n".join([f"file_name,label,{name}", *lines]).encode()
    upload, notices = read(write_zip(tmp_path / "a", {**files, "metadata.csv": table_of_days}), units=None)
    assert upload.train.groups is None
    assert notices.keys() <= {"unused_columns"}
    assert notices["unused_columns"].examples == (name,)


def test_days_under_another_name_are_no_persons(tmp_path: Path) -> None:
    lines = [f"{number}.png,{LABELS[number]},2024-02-0{1 + number % 3}" for number in range(12)]
    files = {f"{number}.png": png for number, png in enumerate(PNGS)}
    table_of_days = "\n".join(["file_name,label,taken", *lines]).encode()
    _, notices = read(write_zip(tmp_path / "a", {**files, "metadata.csv": table_of_days}), units=None)
    assert "person_column" not in notices
