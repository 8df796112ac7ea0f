"""A file is told by its first bytes, whatever it is called, and refused by its name."""

import bz2
import gzip
import io
import lzma
import pickle
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pytest
from PIL import Image
from pydicom.uid import MediaStorageDirectoryStorage

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import read_upload
from datalens_service.data.intake.untrusted.file_kinds import HEAD_BYTES, KINDS, START_BYTES, Use, find_kind

from .builders import encoded, npy_bytes, random_images, tarred, write_zip, zipped
from .dicom_files import dicom, dicom_without_pixels
from .uploads import PNGS, hugging_face_table

SHADES = random_images(1, 16, 16)[0]
PICTURE = Image.fromarray(SHADES)
COLOURS = Image.fromarray(random_images(1, 16, 16, 3)[0])
TABLE = pa.table({"a": [1, 2]})


def written(write: Callable[[io.BytesIO], Any]) -> bytes:
    target = io.BytesIO()
    write(target)
    return target.getvalue()


def in_arrow_stream(target: io.BytesIO) -> None:
    with pa.ipc.new_stream(target, TABLE.schema) as writer:
        writer.write_table(TABLE)


def database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table images (image blob)")
    return connection.serialize()


def nifti(header_bytes: int, name: bytes, place: int) -> bytes:
    head = header_bytes.to_bytes(4, "little").ljust(place, b"\0") + name
    return head.ljust(600, b"\0")


EXAMPLES: dict[str, list[bytes]] = {
    "a DICOM directory (DICOMDIR)": [dicom_without_pixels(MediaStorageDirectoryStorage)],
    "a DICOM file": [
        dicom(SHADES),
        dicom(SHADES)[132:],
        b"II*\0".ljust(128, b"\0") + dicom(SHADES)[128:],
        b"\x08\0\x05\0CS\n\0ISO_IR 100" + bytes(60),
        b"\x08\0\x08\0\x0e\0\0\0ORIGINAL\\AXIAL" + bytes(60),
    ],
    "a PNG picture": [encoded(PICTURE), encoded(PICTURE, save_all=True, append_images=[PICTURE])],
    "a JPEG picture": [
        encoded(PICTURE, "JPEG"),
        encoded(COLOURS, "JPEG", exif=Image.Exif()),
        encoded(COLOURS, "MPO", save_all=True, append_images=[COLOURS]),
    ],
    "a GIF picture": [encoded(PICTURE, "GIF")],
    "a WebP picture": [encoded(COLOURS, "WEBP")],
    "a BMP picture": [encoded(PICTURE, "BMP"), encoded(COLOURS, "BMP")],
    "a TIFF picture": [encoded(PICTURE, "TIFF"), b"MM\0*" + bytes(60), b"II+\0" + bytes(60)],
    "a HEIC picture, as iPhones take them": [
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        b"\0\0\0\x18ftypmif1\0\0\0\0mif1heix",
    ],
    "an AVIF picture": [encoded(COLOURS, "AVIF"), b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf"],
    "a video (MP4 or QuickTime)": [b"\0\0\0\x18ftypisom\0\0\x02\0isommp41", b"\0\0\0\x14ftypqt  \0\0\0\0qt  "],
    "a JPEG XL picture": [b"\xff\x0a" + bytes(20), b"\0\0\0\x0cJXL \r\n\x87\n"],
    "a JPEG 2000 picture": [encoded(COLOURS, "JPEG2000"), b"\xff\x4f\xff\x51" + bytes(9)],
    "a JPEG XR picture": [b"II\xbc\x01" + bytes(9)],
    "a Photoshop picture (PSD)": [b"8BPS\0\x01" + bytes(20)],
    "a GIMP picture (XCF)": [b"gimp xcf v011\0"],
    "a vector drawing (SVG)": [
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- drawn -->\n<svg/>",
        b"<?xml version='1.0'?><!DOCTYPE svg PUBLIC ''>",
    ],
    "a PostScript drawing": [encoded(COLOURS, "EPS"), b"\xc5\xd0\xd3\xc6" + bytes(20)],
    "an icon (ICO)": [encoded(PICTURE, "ICO"), b"\0\0\2\0\1\0" + bytes(20)],
    "an icon (ICNS)": [b"icns" + bytes(20)],
    "a QOI picture": [b"qoif" + bytes(20)],
    "a DDS picture": [encoded(COLOURS, "DDS")],
    "an OpenEXR picture": [b"\x76\x2f\x31\x01" + bytes(20)],
    "a Netpbm picture (PGM, PPM)": [encoded(PICTURE, "PPM"), encoded(COLOURS, "PPM")],
    "a camera's raw picture": [
        b"II*\0\x10\0\0\0CR\x02\0",
        b"FUJIFILMCCD-RAW 0201",
        b"\0\0\0\x18ftypcrx \0\0\0\1crx isom",
        b"IIRO\x08\0\0\0",
    ],
    "a FITS picture": [b"SIMPLE  =                    T".ljust(2880)],
    "a NIfTI volume": [nifti(348, b"n+1\0", 344), nifti(348, b"ni1\0", 344), nifti(540, b"n+2\0\r\n\x1a\n", 4)],
    "an Analyze volume": [nifti(348, b"r", 38)],
    "an NRRD volume": [b"NRRD0005\ntype: uchar\n"],
    "a MetaImage volume": [b"ObjectType = Image\nNDims = 3\n"],
    "a RAR archive": [b"Rar!\x1a\x07\x00", b"Rar!\x1a\x07\x01\x00"],
    "a 7z archive": [b"7z\xbc\xaf\x27\x1c\0\4"],
    "a part of a split zip": [b"PK\x07\x08PK\x03\x04", b"PK00PK\x03\x04"],
    "a zip": [zipped({"a": b"b"}), zipped({})],
    "a tar": [tarred(("a.png", PNGS[0], {}))],
    "a file packed with gzip": [gzip.compress(b"x")],
    "a file packed with bzip2": [bz2.compress(b"x")],
    "a file packed with xz": [lzma.compress(b"x")],
    "a file packed with LZMA": [lzma.compress(b"x", lzma.FORMAT_ALONE)],
    "a file packed with Zstandard": [pa.compress(b"x" * 99, "zstd", asbytes=True)],
    "a file packed with LZ4": [pa.compress(b"x" * 99, "lz4", asbytes=True)],
    "a file packed with lzip": [b"LZIP\1\x0c"],
    "a file packed with compress": [b"\x1f\x9d\x90"],
    "a cabinet archive": [b"MSCF\0\0\0\0"],
    "a disk image (ISO)": [bytes(32769) + b"CD001\x01\0"],
    "a MATLAB file": [b"MATLAB 5.0 MAT-file, Platform: PCWIN64".ljust(128), b"MATLAB 7.3 MAT-file".ljust(600)],
    "an HDF5 file (.h5, .mat)": [b"\x89HDF\r\n\x1a\n" + bytes(50)],
    "a netCDF file": [b"CDF\x01\0\0\0\0"],
    "a pickle of Python objects": [pickle.dumps([1], protocol) for protocol in (2, 3, 4, 5)],
    "a file of TFRecords": [(90).to_bytes(8, "little") + b"\xab\xcd\xef\x01\n\x58\n\x1b" + bytes(90)],
    "a file of tensors (safetensors)": [(80).to_bytes(8, "little") + b'{"weight":{"dtype":"F32"'],
    "an ORC table": [written(lambda target: orc.write_table(TABLE, target))],
    "an Arrow or Feather table": [
        written(lambda target: feather.write_feather(TABLE, target)),
        written(lambda target: feather.write_feather(TABLE, target, version=1)),
        written(in_arrow_stream),
    ],
    "an Avro table": [b"Obj\x01\x04\x14avro.codec"],
    "an encrypted Parquet table": [b"PARE" + bytes(20)],
    "an SQLite database": [database()],
    "a WebM or Matroska video": [b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01"],
    "an AVI video": [b"RIFF\x10\0\0\0AVI LIST"],
    "an MPEG video": [b"\0\0\x01\xba\x44", b"\0\0\x01\xb3\x14"],
    "a Windows Media video": [b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9"],
    "a Flash video": [b"FLV\x01\x05"],
    "a PDF document": [encoded(COLOURS, "PDF")],
    "an old Office document (doc, xls, ppt)": [b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(20)],
    "a web page": [b"<!DOCTYPE html>\n<html>", b"\n<html><body>404 Not Found</body></html>"],
    "a DjVu document": [b"AT&TFORM\0\0\0\x20DJVU"],
    "text in UTF-16": ["file_name,label\na.png,cat\n".encode("utf-16")],
    "a program": [b"\x7fELF\x02\x01\x01", b"MZ\x90\0\x03"],
    "a sound": [b"ID3\x03\0", b"RIFF\x24\0\0\0WAVEfmt ", b"OggS\0\x02", b"fLaC\0\0"],
    "a Parquet table": [hugging_face_table()],
    "a single array of NumPy": [npy_bytes(np.zeros(3))],
}
"""Beginnings of files of each kind, or whole ones where a library here writes them."""

FILES = [(name, content) for name, contents in EXAMPLES.items() for content in contents]
ASKED = {Use.PICTURE, Use.PREPARED_PICTURE}


def test_every_kind_has_an_example() -> None:
    assert EXAMPLES.keys() >= {kind.name for _, kind in KINDS}


@pytest.mark.parametrize(("name", "content"), FILES, ids=[name for name, _ in FILES])
def test_a_kind_is_told_by_the_first_bytes(name: str, content: bytes) -> None:
    kind = find_kind(content[: START_BYTES if name.startswith("a disk image") else HEAD_BYTES])
    assert kind is not None
    assert kind.name == name
    assert (kind.use in ASKED) == (kind.advice == "")


@pytest.mark.parametrize(
    "text", [b"", b"label,pixel0\n1,0\n", b"BMW", b"{}", b"IDs: 1", b"GIFT", b"\0\0\x08\x03" + bytes(12)]
)
def test_other_beginnings_say_nothing(text: bytes) -> None:
    assert find_kind(text) is None


UNREAD = [(name, content) for name, content in FILES if find_kind(content[:HEAD_BYTES]) and
          find_kind(content[:HEAD_BYTES]).use not in ASKED]  # type: ignore[union-attr]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), UNREAD, ids=[name for name, _ in UNREAD])
def test_a_file_of_a_class_folder_is_refused_by_the_name_of_its_kind(tmp_path: Path, name: str, content: bytes) -> None:
    path = write_zip(tmp_path / "upload", {"a/1.png": PNGS[0], "b/2.png": PNGS[1], "b/3.jpg": content})
    with pytest.raises(InvalidDataset) as caught:
        read_upload(path)
    assert name in caught.value.detail
    assert [file.name for file in caught.value.bad_files] == ["b/3.jpg"]  # type: ignore[attr-defined]


WHOLE = [(name, content) for name, content in FILES
         if name not in ("a zip", "a tar", "a Parquet table", "a single array of NumPy")
         and not name.endswith(("with gzip", "with bzip2", "with xz"))]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), WHOLE, ids=[name for name, _ in WHOLE])
def test_an_upload_is_refused_by_the_name_of_its_kind(tmp_path: Path, name: str, content: bytes) -> None:
    for given in (content, gzip.compress(content)):
        (tmp_path / "upload").write_bytes(given)
        with pytest.raises(InvalidDataset) as caught:
            read_upload(tmp_path / "upload")
        assert name in caught.value.detail


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("[Content_Types].xml", "word/media/image1.png"), "an Office document"),
        (("mimetype", "META-INF/manifest.xml", "Pictures/1.png"), "an OpenDocument file"),
        (("mimetype", "META-INF/container.xml", "cover.png"), "an EPUB book"),
        (("META-INF/MANIFEST.MF", "icon.png"), "a Java archive"),
        (("archive/data.pkl", "archive/version"), "a PyTorch file"),
        (("config.json", "model.weights.h5"), "a Keras model"),
        ((".zarray", "0.0"), "a Zarr store"),
        (("images/.zarray", "images/0.0"), "a Zarr store"),
    ],
)
def test_a_file_that_is_a_zip_of_its_own_kind_is_refused_by_its_name(
    tmp_path: Path, names: tuple[str, ...], says: str
) -> None:
    with pytest.raises(InvalidDataset, match=f"This is {says}.*, which is not read. "):
        read_upload(write_zip(tmp_path / "upload", dict.fromkeys(names, PNGS[0])))


def test_the_last_part_of_a_split_zip_is_refused_as_one(tmp_path: Path) -> None:
    end = zipped({f"{n}.png": image for n, image in enumerate(PNGS)})[-200:]
    place = end.rindex(b"PK\x05\x06") + 4
    (tmp_path / "upload.zip").write_bytes(end[:place] + b"\2\0" + end[place + 2 :])
    with pytest.raises(InvalidDataset, match="last part of a split zip"):
        read_upload(tmp_path / "upload.zip")


@pytest.mark.parametrize("method", {9: "Deflate64", 14: "LZMA", 93: "Zstandard", 98: "PPMd", 5: "method 5"}.items())
def test_an_unusual_compression_is_named(tmp_path: Path, method: tuple[int, str]) -> None:
    number, name = method
    whole = zipped({"a/1.png": PNGS[0], "b/2.png": PNGS[1]})
    for entry in range(whole.count(b"PK\x01\x02")):
        place = [at for at in range(len(whole)) if whole.startswith(b"PK\x01\x02", at)][entry] + 10
        whole = whole[:place] + number.to_bytes(2, "little") + whole[place + 2 :]
    (tmp_path / "upload.zip").write_bytes(whole)
    with pytest.raises(InvalidDataset, match=f"unusual compression, {name}"):
        read_upload(tmp_path / "upload.zip")


@pytest.mark.parametrize("ending", [".HEIC", ".tif", ".dcm", ".bin", "", ".txt.bak"])
def test_a_wrong_ending_does_not_matter(tmp_path: Path, ending: str) -> None:
    jpegs = {f"{label}/{n}{ending}": encoded(PICTURE, "JPEG") for label in "ab" for n in range(2)}
    assert len(read_upload(write_zip(tmp_path / "upload", jpegs)).train.labels) == 4


def test_images_behind_many_other_files_are_found(tmp_path: Path) -> None:
    heic = EXAMPLES["a HEIC picture, as iPhones take them"][0]
    others = {f"a/{n:03}.jpg": heic for n in range(40)}
    with pytest.raises(InvalidDataset, match="HEIC") as caught:
        read_upload(write_zip(tmp_path / "upload", {**others, "a/999.png": PNGS[0], "b/1.png": PNGS[1]}))
    assert len(caught.value.bad_files) == 40  # type: ignore[attr-defined]


def test_a_tar_is_told_by_its_first_header() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("ä.png"))
    kind = find_kind(buffer.getvalue()[:HEAD_BYTES])
    assert kind is not None
    assert kind.use is Use.ARCHIVE
