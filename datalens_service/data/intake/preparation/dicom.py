"""DICOM files: the pixels of one frame as 8 bits, and the patient. No other attribute is kept.

Attributes and transforms by DICOM PS3.3, sections C.7.6.3 (pixels), C.11.1 (modality) and C.11.2 (window).
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pydicom
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import FileDataset
from pydicom.multival import MultiValue
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_modality_lut
from pydicom.pixels.utils import pixel_array
from pydicom.uid import (
    HTJ2K,
    JPEG2000,
    UID,
    HTJ2KLossless,
    HTJ2KLosslessRPCL,
    JPEG2000Lossless,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEGLSNearLossless,
)

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.untrusted.images import NoPatient, Patient, check_pixels, decoding
from datalens_service.data.intake.untrusted.limits import Limits
from datalens_service.data.notices import NoticeCode
from datalens_service.data.preparation_settings import PrepareSettings

_GREY: Final = ("MONOCHROME1", "MONOCHROME2")
_COLOUR: Final = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_RCT", "YBR_ICT")
_UNREADABLE: Final = "The DICOM file cannot be decoded. Export it uncompressed, or as 16-bit grey PNG."
_PACKAGES: Final = {
    **dict.fromkeys((JPEGLSLossless, JPEGLSNearLossless), "datalens-service[dicom]"),
    # Pillow decodes some of JPEG 2000.
    **dict.fromkeys((JPEG2000Lossless, JPEG2000, HTJ2KLossless, HTJ2KLosslessRPCL, HTJ2K), "datalens-service[dicom]"),
    # Its wheel brings libraries that nobody maintains any more (OpenSSL 1.1.1, OpenJPEG 2.3): the operator decides.
    **dict.fromkeys((JPEGLossless, JPEGLosslessSV1), "python-gdcm"),
}
"""Packages that decode a compression, by its transfer syntax."""


def read_patient(data: bytes) -> Patient:
    """Read identifier and name of the patient; empty where the file does not have them.

    Raises:
        NoPatient: The file names none.
        InvalidDataset: The file is no image that can be decoded.
    """
    with _reading():
        header = _parse(data, header_only=True)
        _check_pixels_are_there(header, "Rows")
        patient = Patient(*(str(header.get(name) or "").strip() for name in ("PatientID", "PatientName")))
    if not patient.id:
        raise NoPatient(
            "The DICOM file has no patient ID. Name its patient in a metadata.csv with the columns file_name and "
            "patient."
        )
    return patient


def read_dicom(data: bytes, settings: PrepareSettings, limits: Limits) -> tuple[Image.Image, tuple[NoticeCode, ...]]:
    """Read one frame, 8-bit grey or RGB, at its size.

    Raises:
        InvalidDataset: The file is damaged, too large, or of a kind that is not accepted.
    """
    with _reading():
        file = _parse(data)
        changes = _check(file, settings, limits)
        # Without several frames there is no choice.
        pixels = pixel_array(file, index=settings.frame - 1 if changes else 0)
        if file.PhotometricInterpretation in _COLOUR:
            return Image.fromarray(np.asarray(pixels, dtype=np.uint8)), changes
        shown, windowed = _grey(np.asarray(apply_modality_lut(pixels, file), dtype=np.float64), file, settings)
    if file.PhotometricInterpretation == "MONOCHROME1":
        shown = 255 - shown
    return Image.fromarray(shown), (*changes, NoticeCode.WINDOW_APPLIED) if windowed else changes


@contextmanager
def _reading() -> Iterator[None]:
    # Many devices write attributes that are not quite valid; none of those are read.
    with decoding(_UNREADABLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _parse(data: bytes, *, header_only: bool = False) -> FileDataset:
    # Forced, since files without the preamble of 128 bytes are read, too.
    return pydicom.dcmread(io.BytesIO(data), stop_before_pixels=header_only, force=True)


def _check_pixels_are_there(file: FileDataset, attribute: str) -> None:
    """Refuse a file that describes images and holds none, as presentation states, structured reports and plans do.

    Args:
        attribute: One that every file with an image has.
    """
    if attribute not in file:
        name = UID(str(file.get("SOPClassUID") or "")).name
        what = f"is of the kind “{name.removesuffix(' Storage')}” and " if name[:1].isalpha() else ""
        raise InvalidDataset(f"The DICOM file {what}has no pixels. Remove it, or set ⟦skip_unreadable⟧.")


def _check(file: FileDataset, settings: PrepareSettings, limits: Limits) -> tuple[NoticeCode, ...]:
    """Check the attributes before pixels are decoded, and return notices about them."""
    _check_pixels_are_there(file, "PixelData")
    check_pixels(file.Columns, file.Rows, limits)
    _check_compression(file.file_meta.get("TransferSyntaxUID"))
    kind, deep = file.PhotometricInterpretation, file.BitsAllocated > 8
    if kind not in (*_GREY, *_COLOUR) or (kind in _COLOUR and deep):
        raise InvalidDataset("The DICOM image is neither grey nor 8-bit RGB. Export it as one of them.")
    frames = int(file.get("NumberOfFrames") or 1)
    check_frame(frames, settings)
    return (NoticeCode.FRAME_SELECTED,) if frames > 1 else ()


def _check_compression(syntax: UID | None) -> None:
    """Refuse a file whose pixels a package could decode, where that is not installed."""
    if syntax is not None and syntax in _PACKAGES and not get_decoder(syntax).is_available:
        raise InvalidDataset(
            f"The DICOM file is packed as {syntax.name}, which is not read here. Unpack it (`gdcmconv -w packed.dcm "
            f"unpacked.dcm`), or have the package {_PACKAGES[syntax]} installed where uploads are read."
        )


def check_frame(frames: int, settings: PrepareSettings) -> None:
    """Refuse a file with several frames that lacks the chosen one."""
    if 1 < frames < settings.frame:
        raise InvalidDataset(f"The image has {frames} frames, fewer than the chosen one.")


def _grey(values: NDArray[np.float64], file: FileDataset, settings: PrepareSettings) -> tuple[NDArray[np.uint8], bool]:
    """Put values through the chosen window, or the file's; 8-bit values without either stay."""
    if np.isnan(values).any():
        raise InvalidDataset(_UNREADABLE)
    window = settings.window or _read_window(file)
    if window is None and file.BitsStored <= 8 and values.min() >= 0 and values.max() <= 255:
        return np.rint(values).astype(np.uint8), False
    if window is None:
        raise InvalidDataset("The DICOM file names no window. Name the values to show in ⟦prepare_window⟧.")
    return through_window(values, *window), True


def through_window(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.uint8]:
    """Map values to 8 bits: `low` and all below become 0, `high` and all above 255."""
    shown: NDArray[np.uint8] = np.rint(255 * ((values - low) / (high - low)).clip(0, 1)).astype(np.uint8)
    return shown


def _read_window(file: FileDataset) -> tuple[float, float] | None:
    """Return the first window of the file, if it is linear: C.11.2.1.2."""
    centre, width = (_first(file.get(name)) for name in ("WindowCenter", "WindowWidth"))
    function = str(file.get("VOILUTFunction") or "LINEAR")
    if centre is None or width is None or function not in ("LINEAR", "LINEAR_EXACT"):
        return None
    if function == "LINEAR":
        centre, width = centre - 0.5, width - 1
    return (centre - width / 2, centre + width / 2) if width > 0 else None


def _first(value: Any) -> float | None:
    """Return the first of several values of an attribute."""
    values = list(value) if isinstance(value, MultiValue) else [value]
    return None if not values or values[0] in (None, "") else float(values[0])
