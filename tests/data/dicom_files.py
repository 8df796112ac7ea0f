"""DICOM files as a scanner writes them, built in the test."""

import io
from typing import Any

import pydicom
from numpy.typing import NDArray
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import UID, ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid


def dicom(pixels: NDArray[Any], **attributes: Any) -> bytes:
    """A file with `pixels` (height, width), (frames, height, width) or (height, width, 3)."""
    file = _empty(SecondaryCaptureImageStorage, pixels.tobytes().hex())
    colour = pixels.shape[-1] == 3
    bits = 8 * pixels.dtype.itemsize
    file.PatientID, file.PatientName = "P-17", "Doe^Jane"
    file.SamplesPerPixel, file.PhotometricInterpretation = (3, "RGB") if colour else (1, "MONOCHROME2")
    file.PlanarConfiguration = 0
    file.Rows, file.Columns = pixels.shape[:2] if colour else pixels.shape[-2:]
    file.BitsAllocated, file.BitsStored, file.HighBit = bits, bits, bits - 1
    file.PixelRepresentation = int(pixels.dtype.kind == "i")
    if pixels.ndim == 3 and not colour:
        file.NumberOfFrames = len(pixels)
    file.PixelData = pixels.tobytes()
    return _written(file, attributes)


def packed_dicom(pixels: NDArray[Any], syntax: UID, **attributes: Any) -> bytes:
    """The same, compressed by the encoder of a package that scanners' software uses, too."""
    file = pydicom.dcmread(io.BytesIO(dicom(pixels)))
    file.compress(syntax)
    return _written(file, attributes)


def dicom_without_pixels(kind: UID, **attributes: Any) -> bytes:
    """A file that shows no image itself, for example a presentation state or a directory."""
    file = _empty(kind, kind)
    file.PatientID, file.PatientName = "P-17", "Doe^Jane"
    return _written(file, attributes)


def _empty(kind: UID, seed: str) -> FileDataset:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = kind
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[seed])
    file = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    file.SOPClassUID, file.SOPInstanceUID = kind, meta.MediaStorageSOPInstanceUID
    return file


def _written(file: FileDataset, attributes: dict[str, Any]) -> bytes:
    for name, value in attributes.items():
        setattr(file, name, value)
    target = io.BytesIO()
    file.save_as(target, enforce_file_format=True)
    return target.getvalue()
