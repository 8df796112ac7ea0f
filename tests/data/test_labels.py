"""Labels that look alike, and test splits without labels, in every format."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import read_with_notices
from datalens_service.data.dataset import Upload
from datalens_service.data.notices import Notice, NoticeCode
from datalens_service.services.dataset_declaration import DatasetForm

from .builders import npy_bytes, tarred, write_npz, zipped
from .uploads import IMAGES, PNGS, idx, table

Labels = Sequence[Any]


def read(path: Path, **choices: Any) -> tuple[Upload, dict[NoticeCode, Notice]]:
    upload, notices = read_with_notices(path, DatasetForm.model_validate(choices).choices)
    return upload, {notice.code: notice for notice in notices}


def counts(upload: Upload) -> dict[str, int]:
    found = np.bincount(upload.train.labels, minlength=upload.schema.num_classes).tolist()
    return dict(zip(upload.schema.class_names, found, strict=True))


def tar(files: dict[str, bytes]) -> bytes:
    return tarred(*((name, data, {}) for name, data in files.items()))


def arrays(splits: dict[str, Labels]) -> bytes:
    files, start = {}, 0
    for split, labels in splits.items():
        files[f"{split}_images.npy"] = npy_bytes(IMAGES[start : start + len(labels)])
        files[f"{split}_labels.npy"] = npy_bytes(np.array([float("nan") if one is None else one for one in labels]))
        start += len(labels)
    return zipped(files)


def each(splits: dict[str, Labels]) -> list[tuple[str, str, Any]]:
    """Split, key and label of every image."""
    return [(split, f"{n:02}", label) for split, labels in splits.items() for n, label in enumerate(labels)]


def folders(splits: dict[str, Labels]) -> bytes:
    return zipped({f"{split}/{label}/{key}.png": PNGS[n] for n, (split, key, label) in enumerate(each(splits))})


def csv(splits: dict[str, Labels]) -> bytes:
    files = {f"{split}/{key}.png": PNGS[n] for n, (split, key, _) in enumerate(each(splits))}
    tables = {
        f"{split}/metadata.csv": "\n".join(["file_name,label", *(f"{n:02}.png,{one}" for n, one in enumerate(labels))])
        for split, labels in splits.items()
    }
    return zipped({**files, **{name: text.encode() for name, text in tables.items()}})


def jsonl(splits: dict[str, Labels]) -> bytes:
    files = {f"{split}/{key}.png": PNGS[n] for n, (split, key, _) in enumerate(each(splits))}
    tables = {
        f"{split}/metadata.jsonl": "\n".join(
            json.dumps({"file_name": f"{n:02}.png", "label": one}) for n, one in enumerate(labels)
        )
        for split, labels in splits.items()
    }
    return zipped({**files, **{name: text.encode() for name, text in tables.items()}})


def keys(splits: dict[str, Labels]) -> bytes:
    files = {}
    for n, (split, key, label) in enumerate(each(splits)):
        files |= {f"{split}/{key}.png": PNGS[n], f"{split}/{key}.cls": str(label).encode()}
    return tar(files)


def json_keys(splits: dict[str, Labels]) -> bytes:
    files = {}
    for n, (split, key, label) in enumerate(each(splits)):
        files |= {f"{split}/{key}.png": PNGS[n], f"{split}/{key}.json": json.dumps({"label": label}).encode()}
    return tar(files)


def parquet(splits: dict[str, Labels]) -> bytes:
    start, files = 0, {}
    for split, labels in splits.items():
        files[f"data/{split}-0.parquet"] = table(None, image=PNGS[start : start + len(labels)], label=pa.array(labels))
        start += len(labels)
    return zipped(files)


def one_hot(splits: dict[str, Labels]) -> bytes:
    rows = {split: np.array([[label == 0, label == 1] for label in labels], int) for split, labels in splits.items()}
    return zipped(
        {
            "train_images.npy": npy_bytes(IMAGES[:6]), "train_labels.npy": npy_bytes(rows["train"]),
            "test_images.npy": npy_bytes(IMAGES[6:9]), "test_labels.npy": npy_bytes(rows["test"]),
        }
    )  # fmt: skip


WORDS: dict[str, Callable[[dict[str, Labels]], bytes]] = {
    "NPZ": arrays,
    "folders": folders,
    "metadata.csv": csv,
    "metadata.jsonl": jsonl,
    "WebDataset": keys,
    "WebDataset with JSON": json_keys,
    "Parquet": parquet,
}


@pytest.mark.parametrize("container", WORDS)
def test_spaces_around_labels_do_not_count_and_names_that_look_alike_are_said(tmp_path: Path, container: str) -> None:
    path = tmp_path / "upload"
    composed, decomposed, full_width = "café", "cafe\u0301", "ｃａｔ"
    labels = ["cat", "cat ", "Cat", full_width, composed, decomposed, "dog", "straße", "STRASSE"]
    path.write_bytes(WORDS[container]({"train": labels}))
    upload, notices = read(path)
    assert counts(upload) == {"Cat": 1, "STRASSE": 1, "café": 2, "cat": 2, "dog": 1, "straße": 1, full_width: 1}
    assert {"STRASSE, straße", f"Cat, cat, {full_width}"} <= set(notices[NoticeCode.SIMILAR_CLASSES].examples)


@pytest.mark.parametrize("container", WORDS)
def test_labels_of_both_splits_are_tidied_alike(tmp_path: Path, container: str) -> None:
    path = tmp_path / "upload"
    path.write_bytes(WORDS[container]({"train": ["cat", "dog "] * 3, "test": ["cat ", "dog"]}))
    upload, _ = read(path)
    assert upload.schema.class_names == ("cat", "dog")
    assert upload.test is not None
    assert upload.test.labels.tolist() == [0, 1]


def test_names_that_a_file_declares_are_tidied(tmp_path: Path) -> None:
    labels, names = np.array([0, 1, 2] * 4), np.array(["cat", "cat ", "Dog"])
    upload, _ = read(write_npz(tmp_path / "a", images=IMAGES, labels=labels, class_names=names))
    assert counts(upload) == {"cat": 8, "Dog": 4}
    with pytest.raises(InvalidDataset, match="must differ"):
        read(write_npz(tmp_path / "b", images=IMAGES, labels=labels, class_names=np.array(["cat", "cat", "Dog"])))


def test_plain_names_have_no_such_notice(tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_bytes(folders({"train": ["cat", "dog", "catdog"] * 2}))
    assert NoticeCode.SIMILAR_CLASSES not in read(path)[1]


UNLABELLED: dict[str, tuple[Callable[[dict[str, Labels]], bytes], Any]] = {
    "NPZ of −1": (arrays, -1),
    "NPZ of NaN": (arrays, None),
    "one-hot rows of zeros": (one_hot, -1),
    "metadata.csv of −1": (csv, -1),
    "metadata.jsonl of −1": (jsonl, -1),
    "folder called -1": (folders, -1),
    "WebDataset of −1": (keys, -1),
    "WebDataset with JSON of −1": (json_keys, -1),
    "WebDataset with JSON of null": (json_keys, None),
    "Parquet of −1": (parquet, -1),
    "Parquet of null": (parquet, None),
}


@pytest.mark.parametrize("kind", UNLABELLED)
def test_a_test_split_without_labels_is_left_out_and_said(tmp_path: Path, kind: str) -> None:
    make, missing = UNLABELLED[kind]
    path = tmp_path / "upload"
    path.write_bytes(make({"train": [0, 1] * 3, "test": [missing] * 3}))
    upload, notices = read(path)
    assert (counts(upload), upload.test) == ({"0": 3, "1": 3}, None)
    assert notices[NoticeCode.UNLABELLED_TEST].count == 3


@pytest.mark.parametrize("kind", ["NPZ of −1", "NPZ of NaN", "Parquet of −1", "Parquet of null"])
def test_some_labels_that_are_missing_are_refused_by_the_split(tmp_path: Path, kind: str) -> None:
    make, missing = UNLABELLED[kind]
    path = tmp_path / "upload"
    for splits, called in (
        ({"train": [0, 1] * 3, "test": [0, missing, 1]}, "In the test (labels|split), 1 of 3 labels are"),
        ({"train": [0, 1, missing, 1], "test": [0, 1]}, "In the training (labels|split), 1 of 4 labels are"),
        ({"train": [missing] * 4, "test": [0, 1]}, "In the training (labels|split), 4 of 4 labels are"),
    ):
        path.write_bytes(make(splits))
        with pytest.raises(InvalidDataset, match=called):
            read(path)


def test_labels_of_idx_that_stand_for_none_are_refused_by_the_split(tmp_path: Path) -> None:
    """−1 in unsigned bytes is 255, which only the other split tells from a class."""
    files = {"train-i": IMAGES[:6], "train-l": np.arange(6) % 2, "t10k-i": IMAGES[6:9], "t10k-l": np.full(3, 255)}
    path = tmp_path / "upload"
    path.write_bytes(zipped({name: idx(values) for name, values in files.items()}))
    with pytest.raises(InvalidDataset, match="No label of the test labels occurs in the training split"):
        read(path)


@pytest.mark.parametrize("container", WORDS)
def test_a_test_split_of_other_classes_is_refused(tmp_path: Path, container: str) -> None:
    path = tmp_path / "upload"
    path.write_bytes(WORDS[container]({"train": ["cat", "dog"] * 3, "test": ["Cat", "Dog"]}))
    with pytest.raises(InvalidDataset, match=r"No label of the test (labels|split) occurs in the training"):
        read(path)
