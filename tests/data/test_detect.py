import gzip
from pathlib import Path

import numpy as np
import pytest

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import READERS, detect, read_upload
from datalens_service.data.intake.untrusted.validation_errors import UnusableFiles

from .builders import grey, npy_bytes, write_zip
from .uploads import IMAGES, LABELS, UPLOADS


def test_every_reader_has_an_upload_here() -> None:
    assert {kind.partition(" ")[0] for kind in UPLOADS} == READERS.keys()


@pytest.mark.parametrize("name", ["upload", "upload.npz", "upload.zip", "upload.png"])
@pytest.mark.parametrize("kind", UPLOADS)
def test_contents_decide_and_the_name_does_not(tmp_path: Path, kind: str, name: str) -> None:
    assert detect(UPLOADS[kind](tmp_path / name)) == kind.partition(" ")[0]


@pytest.mark.parametrize("kind", UPLOADS)
def test_all_formats_give_the_same_records(tmp_path: Path, kind: str) -> None:
    schema, train, test = read_upload(UPLOADS[kind](tmp_path / "upload"))
    assert (schema.class_names, schema.num_units, test) == (("0", "1", "2"), 12, None)
    # A folder per class puts its records together.
    order = np.argsort(LABELS, kind="stable") if kind.startswith("image_folder") else slice(None)
    np.testing.assert_array_equal(train.images[..., 0], IMAGES[order])
    np.testing.assert_array_equal(train.labels, LABELS[order])


FOREIGN = {
    "nothing": b"",
    "text": b"label,pixel0\n1,0\n",
    "one array": npy_bytes(np.zeros(3)),
    "one image": grey(),
    "gzip of text": gzip.compress(b"label,pixel0"),
    "pickle": b"\x80\x05K\x01.",
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(50),
    "zip behind a script": b"#!/bin/sh\n",
}


SAYS = {
    "nothing": "is empty",
    "one array": "one array without labels",
    "one image": "a PNG picture, a single one",
    "gzip of text": "holds neither a tar nor a zip",
    "pickle": "a pickle of Python objects, which is not read",
    "HDF5": "an HDF5 file",
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("name", ["a.npz", "a.zip"])
def test_other_files_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / name
    appended = UPLOADS["npz"](tmp_path / "b").read_bytes() if kind == "zip behind a script" else b""
    path.write_bytes(FOREIGN[kind] + appended)
    with pytest.raises(InvalidDataset, match=SAYS.get(kind, "neither an NPZ")):
        detect(path)


def test_archives_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match="No file in it is an image that is known"):
        detect(write_zip(tmp_path / "a", {"model.bin": b"x", "data.pkl": b"y"}))


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    for path, sentence in ((tmp_path / "missing", "no such file"), (tmp_path, "no image in it")):
        with pytest.raises(InvalidDataset, match=sentence):
            detect(path)


TIFF, DICOM = b"II*\0" + bytes(200), bytes(128) + b"DICM" + bytes(60)


@pytest.mark.parametrize(("name", "content"), [("a/1.tif", TIFF), ("b/scan.dcm", DICOM)])
def test_images_that_must_be_prepared_are_named_with_the_command(tmp_path: Path, name: str, content: bytes) -> None:
    path = write_zip(tmp_path / "a", {"a/.DS_Store": b"x", name: content})
    with pytest.raises(UnusableFiles, match=r"datalens prepare.*prepare_size") as caught:
        detect(path)
    assert [file.name for file in caught.value.bad_files] == [name]


def test_among_usable_images_every_other_file_is_named(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a", {"a/1.png": grey(), "a/2.tif": TIFF, "a/3.exe": b"x", "a/4.dcm": DICOM})
    with pytest.raises(UnusableFiles) as caught:
        read_upload(path)
    assert {file.name: "datalens prepare" in file.reason for file in caught.value.bad_files} == {
        "a/2.tif": True,
        "a/3.exe": False,
        "a/4.dcm": True,
    }
