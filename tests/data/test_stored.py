import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datalens_service.base.errors import InvalidDataset, NotFound, StateConflict
from datalens_service.data.dataset import Dataset
from datalens_service.data.intake import stored_dataset
from datalens_service.data.intake.stored_dataset import load_dataset, save_dataset

FILES = ["schema.json", "test_images.npy", "test_labels.npy", "train_images.npy", "train_labels.npy"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_loaded(tmp_path: Path, dataset: Dataset) -> None:
    save_dataset(dataset, tmp_path / "a")
    loaded = load_dataset(tmp_path / "a")
    assert loaded.schema == dataset.schema
    assert not hasattr(loaded, "partition_key")
    assert loaded.test is not None
    assert dataset.test is not None
    for split, original in ((loaded.train, dataset.train), (loaded.test, dataset.test)):
        np.testing.assert_array_equal(split.images, original.images)
        np.testing.assert_array_equal(split.labels, original.labels)
    assert names(tmp_path / "a") == FILES


def test_without_a_test_split(tmp_path: Path, dataset: Dataset) -> None:
    save_dataset(replace(dataset, test=None), tmp_path / "a")
    assert load_dataset(tmp_path / "a").test is None
    assert names(tmp_path / "a") == [name for name in FILES if "test" not in name]


def test_records_are_mapped_and_read_only(tmp_path: Path, dataset: Dataset) -> None:
    save_dataset(dataset, tmp_path / "a")
    train = load_dataset(tmp_path / "a").train
    assert isinstance(train.images, np.memmap)
    assert isinstance(train.labels, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        train.images[0] = 0


def test_the_partition_key_is_not_written(tmp_path: Path, dataset: Dataset) -> None:
    save_dataset(dataset, tmp_path / "a")
    for path in (tmp_path / "a").iterdir():
        content = path.read_bytes()
        assert dataset.partition_key not in content
        assert dataset.partition_key.hex().encode() not in content


def test_only_the_owner_of_the_process_may_enter(tmp_path: Path, dataset: Dataset) -> None:
    save_dataset(dataset, tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_nothing_remains_of_a_failed_save(tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stored_dataset.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_dataset(dataset, tmp_path / "a")
    assert names(tmp_path) == []


def test_everything_is_synced_before_the_folder_appears(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def recording_fsync(descriptor: int) -> None:
        order.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        fsync(descriptor)

    def recording_rename(path: Path, target: Path) -> Path:
        order.append("rename")
        return rename(path, target)

    monkeypatch.setattr(stored_dataset.os, "fsync", recording_fsync)
    monkeypatch.setattr(Path, "rename", recording_rename)
    save_dataset(dataset, tmp_path / "a")
    *files, unfinished, renamed, parent = order
    assert sorted(files) == FILES
    assert unfinished.startswith(".a-")
    assert (renamed, parent) == ("rename", tmp_path.name)


def test_a_stored_data_set_is_not_replaced(tmp_path: Path, dataset: Dataset) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(StateConflict):
        save_dataset(dataset, tmp_path / "a")
    assert names(tmp_path) == ["a"]


def test_a_missing_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load_dataset(tmp_path / "a")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "cut off", "garbage", "objects"])
def test_damage_is_refused(tmp_path: Path, dataset: Dataset, name: str, damage: str) -> None:
    save_dataset(dataset, tmp_path / "a")
    path = tmp_path / "a" / name
    content = path.read_bytes()
    path.unlink()
    if damage == "cut off":
        path.write_bytes(content[:-1])
    elif damage == "garbage":
        path.write_bytes(b"garbage")
    elif damage == "objects":
        with path.open("wb") as file:
            np.save(file, np.array([{}] * 12, dtype=object), allow_pickle=True)
    with pytest.raises(InvalidDataset):
        load_dataset(tmp_path / "a")
