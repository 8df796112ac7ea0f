"""Kinds of files by their first bytes: the one table that every reader and every refusal uses.

Nothing here unpacks or decodes anything. A name decides only where the bytes do not.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

HEAD_BYTES: Final = 512
"""The bytes of a file in an archive that are looked at."""
START_BYTES: Final = 2**15 + 6
"""The bytes of an upload that are looked at: the signature of ISO 9660 lies so far behind the start."""

SUFFIXES: Final = (
    ".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".dcm", ".heic", ".heif", ".avif",
)  # fmt: skip
"""Endings of names of images, in lower case."""


class Use(Enum):
    """The use of files of a kind."""

    PICTURE = "a picture that is read as it is"
    PREPARED_PICTURE = "a picture that is read where one size is named for all"
    FOREIGN_PICTURE = "a picture that is not read"
    ARCHIVE = "an archive"
    FOREIGN = "something else"


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        name: A noun with its article.
        advice: Advice to its owner where it is not read.
    """

    name: str
    use: Use
    advice: str = ""

    @property
    def is_picture(self) -> bool:
        """Tell whether it shows a picture, which may be one that is not read."""
        return self.use in (Use.PICTURE, Use.PREPARED_PICTURE, Use.FOREIGN_PICTURE)


_EXPORT: Final = "Export it as PNG or JPEG."
_PACK: Final = "Pack the images as a zip or a tar."
_ARRAYS: Final = "Save images and labels as arrays: numpy.savez_compressed."
_SLICES: Final = "Save its slices as 16-bit PNG or as arrays in an NPZ, and name the patient of each."
_FRAMES: Final = "Save single frames of it as PNG or JPEG."
_PICTURES_IN_IT: Final = "Save the pictures in it as PNG or JPEG."
_TABLE: Final = "Zip the images, with the table beside them as metadata.csv."
_REMOVE: Final = "Send images in its place."

DICOM: Final = FileKind("a DICOM file", Use.PREPARED_PICTURE)
_HEIC: Final = FileKind("a HEIC picture, as iPhones take them", Use.FOREIGN_PICTURE, "Export it as JPEG or PNG.")
_AVIF: Final = FileKind("an AVIF picture", Use.FOREIGN_PICTURE, _EXPORT)
_VIDEO: Final = FileKind("a video (MP4 or QuickTime)", Use.FOREIGN, _FRAMES)
_HEIC_BRANDS: Final = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")

_PATTERNS: Final[dict[Use, dict[str, dict[str, bytes]]]] = {
    Use.PICTURE: {
        "": {
            "a PNG picture": rb"\x89PNG\r\n\x1a\n",
            "a JPEG picture": rb"\xff\xd8\xff",
        },
    },
    Use.PREPARED_PICTURE: {
        "": {
            "a GIF picture": rb"GIF8[79]a",
            "a WebP picture": rb"RIFF....WEBP",
            "a BMP picture": rb"BM.{12}[\x0c-\x7c]\0\0\0",
        },
    },
    Use.FOREIGN_PICTURE: {
        _EXPORT: {
            "a JPEG XL picture": rb"\xff\x0a|\0\0\0\x0cJXL ",
            "a JPEG 2000 picture": rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51",
            "a JPEG XR picture": rb"II\xbc\x01",
            "a Photoshop picture (PSD)": rb"8BPS",
            "a GIMP picture (XCF)": rb"gimp xcf",
            "a vector drawing (SVG)": rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?(<!DOCTYPE svg|<svg)",
            "a PostScript drawing": rb"%!PS|\xc5\xd0\xd3\xc6",
            "an icon (ICO)": rb"\0\0[\x01\x02]\0[\x01-\x40]\0",
            "an icon (ICNS)": rb"icns",
            "a QOI picture": rb"qoif",
            "a DDS picture": rb"DDS ",
            "an OpenEXR picture": rb"\x76\x2f\x31\x01",
            "a Netpbm picture (PGM, PPM)": rb"P[1-7]\s",
            "a camera's raw picture": rb"II\*\0....CR\x02|FUJIFILMCCD-RAW|IIR[OS]|IIU\0|....ftypcrx ",
        },
        "Save it as 16-bit grey PNG.": {
            "a FITS picture": rb"SIMPLE  =",
        },
        _SLICES: {
            "a NIfTI volume": rb"(\x5c\x01\0\0|\0\0\x01\x5c).{340}n[i+]1\0|(\x1c\x02\0\0|\0\0\x02\x1c)n[i+]2\0",
            "an Analyze volume": rb"\x5c\x01\0\0.{34}r|\0\0\x01\x5c.{34}r",
            "an NRRD volume": rb"NRRD000",
            "a MetaImage volume": rb"\s*(ObjectType|NDims)\s*=",
        },
    },
    Use.ARCHIVE: {
        _PACK: {
            "a RAR archive": rb"Rar!\x1a\x07",
            "a 7z archive": rb"7z\xbc\xaf\x27\x1c",
            "a part of a split zip": rb"PK\x07\x08|PK00PK",
            "a zip": rb"PK\x03\x04|PK\x05\x06",
            "a tar": rb".{257}ustar",
            "a file packed with gzip": rb"\x1f\x8b",
            "a file packed with bzip2": rb"BZh[1-9]1AY",
            "a file packed with xz": rb"\xfd7zXZ\0",
            "a file packed with Zstandard": rb"\x28\xb5\x2f\xfd",
            "a file packed with LZ4": rb"\x04\x22\x4d\x18|\x02\x21\x4c\x18",
            "a file packed with lzip": rb"LZIP",
            "a file packed with LZMA": rb"\x5d\0\0.\0{0,2}\xff{6}",
            "a file packed with compress": rb"\x1f[\x9d\xa0]",
            "a cabinet archive": rb"MSCF\0\0\0\0",
            "a disk image (ISO)": rb".{32769}CD001",
        },
    },
    Use.FOREIGN: {
        _ARRAYS: {
            "a MATLAB file": rb"MATLAB [57]\.",
            "an HDF5 file (.h5, .mat)": rb"\x89HDF\r\n\x1a\n",
            "a netCDF file": rb"CDF[\x01\x02\x05]",
            "a pickle of Python objects": rb"\x80[\x02-\x05]",
            "a file of TFRecords": rb"....\0{4}....\n",
            "a file of tensors (safetensors)": rb".{3,6}\0{2,5}\{\"",
            "an ORC table": rb"ORC",
            "an Arrow or Feather table": rb"ARROW1|FEA1|\xff{4}....\x10\0\0\0",
            "an Avro table": rb"Obj\x01",
            "an encrypted Parquet table": rb"PARE",
            "an SQLite database": rb"SQLite format 3\0",
        },
        _FRAMES: {
            "a WebM or Matroska video": rb"\x1a\x45\xdf\xa3",
            "an AVI video": rb"RIFF....AVI ",
            "an MPEG video": rb"\0\0\x01[\xba\xb3]",
            "a Windows Media video": rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11",
            "a Flash video": rb"FLV\x01",
        },
        _PICTURES_IN_IT: {
            "a PDF document": rb"%PDF-",
            "an old Office document (doc, xls, ppt)": rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            "a web page": rb"(\xef\xbb\xbf)?\s*(<!DOCTYPE html|<html)",
            "a DjVu document": rb"AT&TFORM",
        },
        _TABLE: {
            "text in UTF-16": rb"\xff\xfe|\xfe\xff",
        },
        _REMOVE: {
            "a program": rb"\x7fELF|MZ[\x50\x90]\0|\xca\xfe\xba\xbe|\xcf\xfa\xed\xfe",
            "a sound": rb"ID3|OggS|fLaC|RIFF....WAVE",
            "a Parquet table": rb"PAR1",
        },
        _ARRAYS + " Images and labels go into one file.": {
            "a single array of NumPy": rb"\x93NUMPY",
        },
    },
}  # fmt: skip
"""Patterns of the first bytes, by use, by advice and by name. The first that fits decides."""

_DICOM_DIRECTORY: Final = FileKind(
    "a DICOM directory (DICOMDIR)", Use.FOREIGN, "The images lie in files beside it: upload those."
)
_BARE_DICOM: Final = (
    rb"\x02\0\0\0UL\x04\0"
    rb"|\x08\0.\0(AE|CS|DA|DT|IS|LO|OB|PN|SH|SQ|ST|TM|UI|UL)"
    rb"|\x08\0[\0\x01\x05\x08\x12\x16\x18\x20]\0[\x02-\x40]\0\0\0"
)
"""DICOM that begins with its first group, without the preamble of 128 bytes: explicit and implicit value types."""

KINDS: Final = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        # The preamble of DICOM may be the header of another kind, for example of TIFF.
        (rb".{128}DICM.{,200}?1\.2\.840\.10008\.1\.3\.10(?![.\d])", _DICOM_DIRECTORY),
        (rb".{128}DICM", DICOM),
        *(
            (pattern, FileKind(name, use, advice))
            for use, families in _PATTERNS.items()
            for advice, named in families.items()
            for name, pattern in named.items()
        ),
        # Raw pictures of cameras begin as TIFF does.
        (rb"II[\x2a\x2b]\0|MM\0[\x2a\x2b]", FileKind("a TIFF picture", Use.PREPARED_PICTURE)),
        (_BARE_DICOM, DICOM),
    )
)
"""Patterns of first bytes and their kinds, in the order in which they are tried; `_find_brand` has three more."""

_PACKAGES: Final = tuple(
    (re.compile(pattern), FileKind(name, Use.FOREIGN, advice))
    for name, pattern, advice in (
        ("an Office document (docx, xlsx, pptx)", r"\[Content_Types\]\.xml", _PICTURES_IN_IT),
        ("an OpenDocument file", r"META-INF/manifest\.xml", _PICTURES_IN_IT),
        ("an EPUB book", r"META-INF/container\.xml", _PICTURES_IN_IT),
        ("a Java archive", r"META-INF/MANIFEST\.MF", _PACK),
        ("a PyTorch file (.pt)", r"[^/]+/data\.pkl", _ARRAYS),
        ("a Keras model", r"model\.weights\.h5", _ARRAYS),
        ("a Zarr store", r"(.*/)?(\.z(array|group)|zarr\.json)", _ARRAYS),
    )
)
"""Files that are a zip of their own kind, by a name that only they have in them."""


def find_kind(head: bytes) -> FileKind | None:
    """Find the kind of a file by its first bytes; None if they do not tell.

    Args:
        head: `HEAD_BYTES` of a file in an archive, or `START_BYTES` of an upload.
    """
    found = next((kind for pattern, kind in KINDS if pattern.match(head)), None)
    return _find_brand(head) if found is None and head[4:8] == b"ftyp" else found


def find_package(names: Iterable[str]) -> FileKind | None:
    """Find the kind of a zip with these names, if it is a file of its own kind."""
    return next((kind for name in names for pattern, kind in _PACKAGES if pattern.fullmatch(name)), None)


def is_dicom(head: bytes) -> bool:
    """Tell whether a file that begins so is DICOM, with its preamble or without."""
    return find_kind(head) is DICOM


def is_image_name(name: str) -> bool:
    """Tell whether a file is named like an image."""
    return name.casefold().endswith(SUFFIXES)


def _find_brand(head: bytes) -> FileKind:
    """Find the brand in the first box of the container that pictures and videos share (ISO 14496-12, 4.3)."""
    box = head[8 : min(len(head), int.from_bytes(head[:4]))]
    brands = [box[start : start + 4] for start in range(0, len(box), 4) if start != 4]
    if any(brand in (b"avif", b"avis") for brand in brands):
        return _AVIF
    return _HEIC if any(brand in _HEIC_BRANDS for brand in brands) else _VIDEO
