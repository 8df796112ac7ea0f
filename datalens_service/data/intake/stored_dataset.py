"""A data set on disk inside the service: plain .npy files and `schema.json` in a folder of its own.

The files are memory-mapped, so a job starts without reading them whole. The partition key is kept elsewhere:
somebody who copies the folder does not learn which record trained which teacher.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import NotFound, StateConflict
from datalens_service.data.dataset import Schema, Split, Upload, check_upload
from datalens_service.data.intake.untrusted.entries import refusing

PRIVATE_READS = ("reading the upload",)

_SCHEMA = "schema.json"
_TRAIN, _TEST = "train", "test"


def save_dataset(upload: Upload, folder: Path) -> None:
    """Write the records of a data set durably; `folder` appears complete or not at all.

    Args:
        upload: The records, without their key, which is never written here.
        folder: Must not exist; its parent must.

    Raises:
        StateConflict: `folder` exists.
    """
    # Readable by the service's own user only, as mkdtemp makes it.
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write_files(upload, unfinished)
        sync_folder(unfinished)
        _publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    sync_folder(folder.parent)


def load_dataset(folder: Path) -> Upload:
    """Open the records of a stored data set; images and labels stay on disk until they are used.

    Args:
        folder: A folder of `save_dataset`.

    Raises:
        NotFound: There is no such folder.
        InvalidDataset: Its files are damaged.
    """
    if not folder.is_dir():
        raise NotFound("The records of this data set are not stored here.")
    with refusing("The stored data set is damaged. Restore it from a backup, or upload it again."):
        schema = Schema.model_validate_json((folder / _SCHEMA).read_bytes())
        has_test = _path(folder, _TEST, "images").exists() or _path(folder, _TEST, "labels").exists()
        test = _load_split(folder, _TEST) if has_test else None
        upload = Upload(schema, _load_split(folder, _TRAIN), test)
        check_upload(upload)
        return upload


def _path(folder: Path, split: str, part: str) -> Path:
    return folder / f"{split}_{part}.npy"


def _write_files(upload: Upload, folder: Path) -> None:
    for name, split in ((_TRAIN, upload.train), (_TEST, upload.test)):
        if split is not None:
            _write_array(_path(folder, name, "images"), split.images)
            _write_array(_path(folder, name, "labels"), split.labels)
        for part, ids in () if split is None else (("units", split.units), ("groups", split.groups)):
            if ids is not None:
                _write_array(_path(folder, name, part), ids)
    text = upload.schema.model_dump_json().encode()
    _write_durably(folder / _SCHEMA, lambda file: file.write(text))


def _write_array(path: Path, values: NDArray[Any]) -> None:
    _write_durably(path, lambda file: np.save(file, values, allow_pickle=False))


def _write_durably(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    with path.open("xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the entries of `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(unfinished: Path, folder: Path) -> None:
    # A rename would silently replace an empty folder.
    if folder.exists():
        raise StateConflict("A data set is already stored here.")
    unfinished.rename(folder)


def _load_split(folder: Path, split: str) -> Split:
    images = np.load(_path(folder, split, "images"), mmap_mode="r", allow_pickle=False)
    labels = np.load(_path(folder, split, "labels"), mmap_mode="r", allow_pickle=False)
    # Both are missing where the upload says nothing; groups also where an earlier version stored the split, which kept
    # those of training records as units.
    units = _load_ids(_path(folder, split, "units"))
    groups = _load_ids(_path(folder, split, "groups"))
    return Split(images, labels, units, units if groups is None else groups)


def _load_ids(path: Path) -> NDArray[np.int64] | None:
    return np.load(path, allow_pickle=False) if path.exists() else None
