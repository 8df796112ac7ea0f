"""Which files can be prepared, told from their name and first bytes: nothing here decodes an image."""

from typing import Final

from datalens_service.data.untrusted.images import MAGIC

TITLE: Final = "PNG, JPEG, BMP, GIF, TIFF, WebP and DICOM"
SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".dcm")

_OTHER_MAGIC: Final = (b"BM", b"GIF8", b"II*\0", b"MM\0*", b"RIFF")
_DICOM_MAGIC: Final = b"DICM"
_PREAMBLE_BYTES: Final = 128


def is_dicom(data: bytes) -> bool:
    """Whether bytes begin like a DICOM file."""
    return data[_PREAMBLE_BYTES : _PREAMBLE_BYTES + len(_DICOM_MAGIC)] == _DICOM_MAGIC


def is_preparable(head: bytes) -> bool:
    """Whether the first `images.HEAD_BYTES` bytes are those of an image that can be prepared."""
    return head.startswith((*MAGIC, *_OTHER_MAGIC)) or is_dicom(head)
