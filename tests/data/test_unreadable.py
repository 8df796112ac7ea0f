"""Whatever one image alone is refused for, `skip_unreadable` leaves it out, in every container, and says so."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pydicom.uid import GrayscaleSoftcopyPresentationStateStorage

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import read_with_notices
from datalens_service.data.dataset import Upload
from datalens_service.data.intake.untrusted.validation_errors import UnusableFiles
from datalens_service.data.notices import NoticeCode
from datalens_service.services.dataset_declaration import DatasetForm

from .builders import encoded, grey, random_images, tarred, write_zip, zipped
from .dicom_files import dicom, dicom_without_pixels
from .hostile import png
from .test_file_kinds import EXAMPLES
from .uploads import PNGS, table

SHADES = random_images(1, 8, 8)[0]
COLOURS = random_images(1, 8, 8, 3)[0]
PLAIN: dict[str, Any] = {}
PREPARED = {"prepare_size": "8", "ignore_groups": True}


def palette_dicom() -> bytes:
    return dicom(SHADES, PhotometricInterpretation="PALETTE COLOR")


DAMAGED = {
    "a PNG cut off": PNGS[0][:-30],
    "a JPEG cut off": encoded(Image.fromarray(SHADES), "JPEG")[:-40],
    "nothing": b"",
    "a page that was not found": b"<html>404</html>",
    "a HEIC": EXAMPLES["a HEIC picture, as iPhones take them"][0],
    "an AVIF": EXAMPLES["an AVIF picture"][0],
    "a PDF": EXAMPLES["a PDF document"][0],
    "a video": EXAMPLES["a video (MP4 or QuickTime)"][0],
    "an HDF5 file": EXAMPLES["an HDF5 file (.h5, .mat)"][0],
    "60,000 by 60,000 pixels": png(60_000, 60_000, 8, 0, zlib.compress(bytes(2**14))),
    "9,000 by 9,000 pixels": png(9_000, 9_000, 8, 0, zlib.compress(bytes(2**14))),
    "16-bit RGBA": png(8, 8, 16, 6, zlib.compress((b"\0" + bytes(64)) * 8)),
    "16-bit RGB": png(8, 8, 16, 2, zlib.compress((b"\0" + bytes(48)) * 8)),
    "16-bit grey": encoded(Image.fromarray(SHADES.astype(np.uint16) * 99)),
    "floats": encoded(Image.fromarray(SHADES.astype(np.float32)), "TIFF"),
    "a DICOM without pixels": dicom_without_pixels(GrayscaleSoftcopyPresentationStateStorage),
    "a DICOM directory": EXAMPLES["a DICOM directory (DICOMDIR)"][0],
    "a DICOM cut off": dicom(SHADES)[:-40],
    "a DICOM cut off, without preamble": dicom(SHADES)[132:-40],
    "a DICOM of noise": bytes(128) + b"DICM" + bytes(SHADES),
    "a DICOM with a palette": palette_dicom(),
    "a DICOM without a window": dicom(SHADES.astype(np.int16)),
    "a DICOM of other kinds of pixels": dicom(SHADES, PhotometricInterpretation="NONSENSE"),
    "a file packed with zeros": grey() + bytes(10**6),
}
"""Files that no choice reads."""

UNPREPARED = {
    "something behind a PNG": PNGS[0] + b"<script>",
    "transparent": encoded(Image.fromarray(COLOURS).convert("RGBA")),
    "a palette": encoded(Image.fromarray(COLOURS).convert("P")),
    "CMYK": encoded(Image.fromarray(COLOURS).convert("CMYK"), "JPEG"),
    "animated": EXAMPLES["a PNG picture"][1],
    "a GIF": EXAMPLES["a GIF picture"][0],
    "a TIFF": EXAMPLES["a TIFF picture"][0],
    "a DICOM": dicom(SHADES),
}
"""Files that are read where one size is named for all."""

FEW_FRAMES = {"two frames of three": encoded(Image.fromarray(SHADES), "TIFF", save_all=True,
                                             append_images=[Image.fromarray(SHADES)])}  # fmt: skip

Contents = dict[str, tuple[bytes, str]]
"""By its key: a file, and its label."""


def by_folder(contents: Contents) -> dict[str, bytes]:
    return {f"{label}/{key}.png": data for key, (data, label) in contents.items()}


def by_table(contents: Contents) -> dict[str, bytes]:
    lines = [f"{key}.png,{label}" for key, (_, label) in contents.items()]
    files = {f"{key}.png": data for key, (data, _) in contents.items()}
    return {**files, "metadata.csv": "\n".join(["file_name,label", *lines]).encode()}


def by_key(contents: Contents) -> dict[str, bytes]:
    files = {}
    for key, (data, label) in contents.items():
        files |= {f"{key}.png": data, f"{key}.cls": label.encode()}
    return files


def by_json(contents: Contents) -> dict[str, bytes]:
    files = {}
    for key, (data, label) in contents.items():
        files |= {f"{key}.png": data, f"{key}.json": json.dumps({"label": label}).encode()}
    return files


def tar(files: dict[str, bytes]) -> bytes:
    return tarred(*((name, data, {}) for name, data in files.items()))


def rows(contents: Contents, *, as_struct: bool) -> bytes:
    images = [{"bytes": data, "path": None} if as_struct else data for data, _ in contents.values()]
    return table(None, image=images, label=[label for _, label in contents.values()])


CONTAINERS: dict[str, Callable[[Contents], bytes]] = {
    "zip of folders": lambda contents: zipped(by_folder(contents)),
    "tar of folders": lambda contents: tar(by_folder(contents)),
    "zip with a table": lambda contents: zipped(by_table(contents)),
    "tar with a table": lambda contents: tar(by_table(contents)),
    "WebDataset": lambda contents: tar(by_key(contents)),
    "WebDataset with JSON": lambda contents: tar(by_json(contents)),
    "Parquet of bytes": lambda contents: rows(contents, as_struct=False),
    "Parquet of structs": lambda contents: rows(contents, as_struct=True),
    "zip of Parquet": lambda contents: zipped({"data/train-0.parquet": rows(contents, as_struct=True)}),
}
GOOD: Contents = {f"{n:02}": (PNGS[n], "ab"[n % 2]) for n in range(6)}
CASES = [
    *((name, data, PLAIN) for name, data in {**DAMAGED, **UNPREPARED}.items()),
    *((name, data, PREPARED) for name, data in DAMAGED.items()),
    *((name, data, {**PREPARED, "prepare_frame": 3}) for name, data in FEW_FRAMES.items()),
]


def read(path: Path, **choices: Any) -> tuple[Upload, dict[NoticeCode, int]]:
    upload, notices = read_with_notices(path, DatasetForm.model_validate(choices).choices)
    return upload, {notice.code: notice.count for notice in notices}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(("name", "data", "choices"), CASES, ids=[f"{name} {'-'.join(c)}" for name, _, c in CASES])
def test_an_image_that_is_refused_can_be_left_out(
    tmp_path: Path, container: str, name: str, data: bytes, choices: dict[str, Any]
) -> None:
    make = CONTAINERS[container]
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(make(GOOD))
    bad.write_bytes(make({**GOOD, "99": (data, "b")}))
    # Bytes of zeros are packed away in a zip alone.
    if name == "a file packed with zeros" and not container.startswith("zip of f"):
        pytest.skip("not packed")
    with pytest.raises(UnusableFiles) as caught:
        read(bad, **choices)
    assert caught.value.count == 1
    expected, _ = read(good, **choices)
    upload, notices = read(bad, **choices, skip_unreadable=True)
    assert notices[NoticeCode.UNREADABLE_LEFT_OUT] == 1
    # Of files that are left out, it may be known that they belong together.
    assert upload.schema.model_copy(update={"groups_ignored": False}) == expected.schema
    np.testing.assert_array_equal(upload.train.images, expected.train.images)
    np.testing.assert_array_equal(upload.train.labels, expected.train.labels)


@pytest.mark.parametrize("container", CONTAINERS)
def test_where_nothing_else_is_left_the_files_are_refused_all_the_same(tmp_path: Path, container: str) -> None:
    path = tmp_path / "upload"
    heic = DAMAGED["a HEIC"]
    path.write_bytes(CONTAINERS[container]({f"{n}": (heic, "ab"[n % 2]) for n in range(3)}))
    for skip in (False, True):
        with pytest.raises(UnusableFiles, match="HEIC") as caught:
            read(path, skip_unreadable=skip)
        assert caught.value.count == 3


@pytest.mark.parametrize("name", ["a DICOM without pixels", "a DICOM cut off", "a DICOM of noise", "a HEIC"])
def test_what_cannot_be_read_does_not_name_no_patient(tmp_path: Path, name: str) -> None:
    scans = {f"{'ab'[n % 2]}/{n}.dcm": dicom(SHADES + n, PatientID=f"P-{n // 2}") for n in range(6)}
    path = write_zip(tmp_path / "upload", {**scans, "a/9.dcm": DAMAGED[name]})
    choices = {"prepare_size": "8", "records_per_unit": 2}
    with pytest.raises(InvalidDataset) as caught:
        read(path, **choices)
    assert "patient" not in caught.value.detail
    upload, notices = read(path, **choices, skip_unreadable=True)
    assert (upload.schema.num_units, upload.schema.unit) == (3, "patient")
    assert notices[NoticeCode.UNREADABLE_LEFT_OUT] == 1


CELLS = {
    "null": None,
    "a struct of nulls": {"bytes": None, "path": None},
    "a path": {"bytes": None, "path": "a/1.png"},
}


@pytest.mark.parametrize("cell", CELLS)
def test_cells_without_an_image_are_named_and_left_out(tmp_path: Path, cell: str) -> None:
    images = [*({"bytes": data, "path": None} for data in PNGS[:6]), CELLS[cell]]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    path = tmp_path / "upload"
    path.write_bytes(table(None, image=pa.array(images, kind), label=[0, 1] * 3 + [1]))
    with pytest.raises(UnusableFiles, match="no image") as caught:
        read(path)
    assert [file.name for file in caught.value.bad_files] == ["row 6"]
    upload, notices = read(path, skip_unreadable=True)
    assert (len(upload.train.labels), notices[NoticeCode.UNREADABLE_LEFT_OUT]) == (6, 1)


@pytest.mark.parametrize("container", ["Parquet of bytes", "zip with a table", "WebDataset with JSON", "WebDataset"])
def test_images_without_a_label_are_left_out(tmp_path: Path, container: str) -> None:
    path = tmp_path / "upload"
    if container == "Parquet of bytes":
        path.write_bytes(table(None, image=PNGS[:7], label=[0, 1] * 3 + [None]))
    elif container == "WebDataset":
        path.write_bytes(tar({**by_key(GOOD), "99.png": PNGS[9]}))
    else:
        path.write_bytes(CONTAINERS[container]({**GOOD, "99": (PNGS[9], "")}))
    with pytest.raises(InvalidDataset):
        read(path)
    upload, notices = read(path, skip_unreadable=True)
    assert (len(upload.train.labels), notices[NoticeCode.UNREADABLE_LEFT_OUT]) == (6, 1)


@pytest.mark.parametrize(("name", "data"), {"labels.csv": b"a,b", "more.zip": zipped({}), "more.rar": b"Rar!\x1a\x07\0",
                                            "x.feather": b"ARROW1" + bytes(9)}.items())  # fmt: skip
def test_tables_and_archives_beside_images_are_never_left_out(tmp_path: Path, name: str, data: bytes) -> None:
    path = write_zip(tmp_path / "upload", {**by_folder(GOOD), f"a/{name}": data})
    with pytest.raises(UnusableFiles) as caught:
        read(path, skip_unreadable=True)
    assert [file.name for file in caught.value.bad_files] == [f"a/{name}"]


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (pa.array([[PNGS[0]], [PNGS[1]]], pa.list_(pa.binary())), "a list of images. Write one image into each row"),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.uint8())), "a list of numbers. Save pixels and labels as arrays"),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.uint8(), 2)), "a list of numbers"),
        (pa.array([[[1]], [[3]]], pa.list_(pa.list_(pa.uint8()))), "a list of numbers"),
        (pa.array(["a.png", "b.png"]), "no image bytes but text"),
        (pa.array([1, 2]), "no image bytes but other values"),
        (pa.array([0.5, 2]), "no image bytes but other values"),
    ],
)
def test_a_column_that_holds_no_images_is_refused_by_what_it_holds(tmp_path: Path, cells: pa.Array, says: str) -> None:
    path = tmp_path / "upload"
    path.write_bytes(table(None, image=cells, label=[0, 1]))
    with pytest.raises(InvalidDataset, match=says):
        read(path, skip_unreadable=True)
