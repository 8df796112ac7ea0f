"""Units of several records: who belongs together, what was declared, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import ReadingChoices, UnitDeclaration, read_upload
from datalens_service.data.dataset import Dataset, Schema, Split, Upload
from datalens_service.data.intake.stored_dataset import load_dataset, save_dataset
from datalens_service.data.partition import assign_shards
from datalens_service.data.privacy_units import identities
from datalens_service.services.dataset_declaration import DatasetForm

from .builders import grey, random_images, write_npz, write_zip

PATIENT = UnitDeclaration(name="patient", records=3)
IMAGES, LABELS = random_images(6, 8, 8), np.array([0, 1, 1, 1, 0, 0])
GROUPS = np.array(["ada", "bob", "ada", "bob", "eve", "ada"])


def read(folder: Path, units: UnitDeclaration | None = PATIENT, **arrays: object) -> Upload:
    named = {"train_images": IMAGES, "train_labels": LABELS, "groups": GROUPS, **arrays}
    given = {name: value for name, value in named.items() if value is not None}
    return read_upload(write_npz(folder / "upload", **given), ReadingChoices(units=units))


def test_an_npz_says_who_belongs_together(tmp_path: Path) -> None:
    schema, train, test = read(tmp_path, test_images=IMAGES[:2], test_labels=LABELS[:2])
    assert (schema.unit, schema.num_units, schema.records_per_unit, schema.classes_per_unit) == ("patient", 3, 3, 2)
    assert train.unit_ids.tolist() == identities(["ada", "bob", "ada", "bob", "eve", "ada"]).tolist()
    assert len(set(train.unit_ids.tolist())) == 3
    assert test is not None
    assert test.units is None


@pytest.mark.parametrize("groups", [np.array([7, 9, 7, 9, 8, 7]), np.array(["7", "9", "7", "9", "8", "7"])])
def test_groups_may_be_numbers(tmp_path: Path, groups: np.ndarray) -> None:
    assert read(tmp_path, groups=groups).train.unit_ids.tolist() == identities([7, 9, 7, 9, 8, 7]).tolist()


def test_one_name_is_one_unit_however_it_is_written() -> None:
    assert len(set(identities(["\u00c5sa", "A\u030asa", " \u00c5sa ", "\u00c5sa\n"]).tolist())) == 1
    assert len(set(identities(["Ada", "ada", " A DA", "\u200bada", "\uff21da"]).tolist())) == 1
    assert len(set(identities(["ada", "a-da", "\ud800", "\ud801"]).tolist())) == 4


def test_a_folder_says_who_belongs_together(tmp_path: Path) -> None:
    table = b"file_name,ward,group\ncat/1.png,3,ada\ncat/2.png,3,bob\ndog/1.png,4,ada\n"
    contents = {"train/metadata.csv": table, "train/cat/1.png": grey(1), "train/cat/2.png": grey(2)}
    contents |= {"train/dog/1.png": grey(3), "test/cat/9.png": grey(9)}
    schema, train, _ = read_upload(write_zip(tmp_path / "upload", contents), ReadingChoices(units=PATIENT))
    assert train.unit_ids.tolist() == identities(["ada", "bob", "ada"]).tolist()
    assert schema.num_units == 2


def test_a_wrapped_folder_with_names_beyond_ascii(tmp_path: Path) -> None:
    table = "\ufefffile_name,group\n\u00e9/1.png,\u00c5sa\n\u00e9/2.png,bob\n".encode()
    contents = {"pets/metadata.csv": table, "pets/e\u0301/1.png": grey(1), "pets/e\u0301/2.png": grey(2)}
    schema, train, _ = read_upload(write_zip(tmp_path / "upload", contents), ReadingChoices(units=PATIENT))
    assert train.unit_ids.tolist() == identities(["\u00c5sa", "bob"]).tolist()
    assert schema.class_names == ("\u00e9",)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (b"file_name,group\na/1.png,x\n", "names its group"),
        (b"file_name,group\na/1.png,x\na/2.png,\n", "column group is empty"),
        (b"file_name,group\na/1.png,x\na/1.png,y\n", "named twice"),
        (b"file_name,label\na/1.png,x\n", "names this image"),
        (b"file_name,note\na/1.png,x\n", "label_column"),
        (b"", "is empty"),
        (b"\xff\xfe\x00", "UTF-16"),
        (b"file_name,group\na/1.png,x,y\n", "3 values"),
        (b"file_name,patient,subject\na/1.png,x,y\n", "Several columns"),
        (b"file_name,group\na/1.png," + b"x" * 200_000, "no row of a table"),
    ],
)
def test_a_table_that_leaves_room_for_doubt_is_refused(tmp_path: Path, table: bytes, sentence: str) -> None:
    contents = {"metadata.csv": table, "a/1.png": grey(1), "a/2.png": grey(2)}
    with pytest.raises(InvalidDataset, match=sentence):
        read_upload(write_zip(tmp_path / "upload", contents), ReadingChoices(units=PATIENT))


@pytest.mark.parametrize(
    ("units", "arrays", "sentence"),
    [
        (None, {}, "Declare records_per_unit"),
        (PATIENT, {"groups": None}, "does not say which images belong together"),
        (UnitDeclaration(records=2), {}, "more than the declared 2"),
        (UnitDeclaration(records=3, classes=1), {}, "more than the declared number of classes"),
        (PATIENT, {"groups": GROUPS[:5]}, "exactly one group"),
        (PATIENT, {"groups": GROUPS[:, None]}, "one-dimensional"),
        (PATIENT, {"groups": np.arange(6) / 2}, "integers or strings"),
        (PATIENT, {"train_groups": GROUPS}, "one way"),
        (UnitDeclaration(records=6), {"groups": np.zeros(6, dtype=int)}, "All 6 training images have the same group"),
    ],
)
def test_what_was_not_declared_is_refused(
    tmp_path: Path, units: UnitDeclaration | None, arrays: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidDataset, match=sentence):
        read(tmp_path, units, **arrays)


def test_classes_of_a_unit_are_bounded_by_what_is_known() -> None:
    assert UnitDeclaration(records=3).bound_classes(10) == 3
    assert UnitDeclaration(records=30).bound_classes(10) == 10
    assert UnitDeclaration(records=30, classes=4).bound_classes(10) == 4
    declared = DatasetForm(records_per_unit=2, classes_per_unit=5000).choices.units
    assert declared is not None
    assert declared.bound_classes(10) == 2


def test_units_are_kept_beside_the_records(tmp_path: Path) -> None:
    upload = read(tmp_path)
    save_dataset(upload, tmp_path / "kept")
    loaded = load_dataset(tmp_path / "kept")
    assert loaded.schema == upload.schema
    assert loaded.train.unit_ids.tolist() == upload.train.unit_ids.tolist()


def test_stored_units_that_were_changed_are_noticed(tmp_path: Path) -> None:
    save_dataset(read(tmp_path), tmp_path / "kept")
    np.save(tmp_path / "kept" / "train_units.npy", np.arange(6))
    with pytest.raises(InvalidDataset):
        load_dataset(tmp_path / "kept")


def test_records_without_groups_are_their_own_units() -> None:
    split = Split(IMAGES[..., None], LABELS)
    schema = Schema(channels=1, height=8, width=8, class_names=("a", "b"), num_units=6)
    assert split.unit_ids.tolist() == list(range(6))
    with pytest.raises(InvalidDataset, match="more than the declared 1"):
        Dataset(replace_units(schema, 3), replace(split, units=identities(GROUPS)), None, b"k" * 32)


def replace_units(schema: Schema, num_units: int) -> Schema:
    return schema.model_copy(update={"num_units": num_units})


@pytest.mark.parametrize("pure", [False, True])
def test_a_shard_belongs_to_whole_units(pure: bool) -> None:
    rng = np.random.default_rng(0)
    units, labels = identities(rng.integers(0, 90, 400)), rng.integers(0, 4, 400)
    shards = assign_shards(b"k" * 32, units, 20, labels if pure else None, 4)
    for unit in np.unique(units):
        mine = units == unit
        assert len(set(shards[mine].tolist())) == (len(set(labels[mine].tolist())) if pure else 1)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_table_may_have_other_delimiters_and_a_column_patient(tmp_path: Path, delimiter: str) -> None:
    table = "file_name,patient\ncat/1.png,ada\ndog/2.png,bob\n".replace(",", delimiter).encode()
    contents = {"metadata.csv": table, "cat/1.png": grey(1), "dog/2.png": grey(2)}
    _, train, _ = read_upload(write_zip(tmp_path / "upload", contents), ReadingChoices(units=PATIENT))
    assert train.unit_ids.tolist() == identities(["ada", "bob"]).tolist()
    labelled = table.replace(b"patient", b"label")
    pictures = {"metadata.csv": labelled, "cat/1.png": grey(1), "dog/2.png": grey(2)}
    assert read_upload(write_zip(tmp_path / "labels", pictures)).schema.class_names == ("ada", "bob")


@pytest.mark.parametrize("wrapper", ["", "study/", "study/train/"])
def test_folders_of_patients_are_units_where_units_are_declared(tmp_path: Path, wrapper: str) -> None:
    names = ("sick/ada/1.png", "sick/bob/2.png", "well/ada/3.png", "well/cem/4.png")
    contents = {f"{wrapper}{name}": grey(value) for value, name in enumerate(names)}
    path = write_zip(tmp_path / "upload", contents)
    schema, train, _ = read_upload(path, ReadingChoices(units=PATIENT))
    assert train.unit_ids.tolist() == identities(["ada", "bob", "ada", "cem"]).tolist()
    assert (schema.class_names, schema.num_units) == (("sick", "well"), 3)
    with pytest.raises(InvalidDataset, match="records_per_unit"):
        read_upload(path)
