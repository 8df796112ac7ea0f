"""Conversion of arrays of numbers to images: uint8 (n, height, width, channels), of one size and mode where chosen.

The byte of a number is a function of its type, of its own image and of public settings: no image is scaled by
another one.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import Images
from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.data.preparation_settings import PrepareSettings

_ROWS_AT_ONCE: Final = 4096
_WINDOWED: Final = 2
_NOT_A_NUMBER: Final = "Image {} has a value that is no number (NaN)."
_MORE_BITS: Final = (
    "Images must be integers in 0..255 or finite floats in [0, 1] or [0, 255]. Convert them to uint8, or prepare them: "
    "`datalens prepare` on your machine, or ⟦prepare_size⟧ with ⟦prepare_window⟧ at the upload."
)


def check_image_header(shape: tuple[int, ...], dtype: np.dtype[Any], *, prepared: bool) -> None:
    """Refuse an array that cannot be images, before it is read."""
    flat = len(shape) == 2 and math.isqrt(shape[1]) ** 2 == shape[1]
    if not flat and (len(shape) not in (3, 4) or (len(shape) == 4 and not {1, 3} & {shape[1], shape[3]})):
        raise InvalidDataset(
            f"Images have the shape {shape}. It must be (n, height, width), (n, height, width, 1 or 3), (n, 1 or 3, "
            "height, width), or (n, side × side) in grey: reshape the array."
        )
    if dtype.kind not in "uif":
        raise InvalidDataset("Images must be integers in 0..255 or floats in [0, 1] or [0, 255].")


def convert_pixels(values: NDArray[Any], name: str, preparation: PrepareSettings | None, notices: Notices) -> Images:
    """Convert an array whose header passed `check_image_header` to images.

    Raises:
        InvalidDataset: Numbers are out of range.
    """
    values = _with_axes(values, name, notices)
    if preparation is not None:
        return _prepare(values, preparation, notices)
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    images = np.empty(values.shape, dtype=np.uint8)
    scaled = np.zeros(len(values), dtype=np.int8)
    for start in range(0, len(values), _ROWS_AT_ONCE):
        block = slice(start, start + _ROWS_AT_ONCE)
        images[block], scaled[block] = _as_bytes(values[block], start)
    _check_one_range(scaled)
    notices.count(NoticeCode.FLOATS_TO_255, int((scaled > 0).sum()) if values.dtype.kind == "f" else 0)
    return images


def _as_bytes(values: NDArray[Any], start: int) -> tuple[Images, NDArray[np.int8]]:
    """Convert some images to bytes, and return them with the range of each.

    Args:
        values: (n, height, width, channels).
        start: Number of the first image, for refusals.

    Returns:
        uint8 of the same shape; int8 (n,), 1 for numbers up to 255, -1 for floats up to 1, 0 for either (all zero).

    Raises:
        InvalidDataset: An image has numbers out of range.
    """
    lowest, highest = values.min(axis=(1, 2, 3)), values.max(axis=(1, 2, 3))
    if values.dtype.kind == "f" and np.isnan(highest).any():
        raise InvalidDataset(_NOT_A_NUMBER.format(start + int(np.isnan(highest).argmax())))
    # Written so that infinity fails, too.
    wrong = ~((lowest >= 0) & (highest <= 255))
    if wrong.any():
        raise InvalidDataset(f"Image {start + int(wrong.argmax())} has values out of range. {_MORE_BITS}")
    if values.dtype.kind != "f":
        return values.astype(np.uint8), np.ones(len(values), dtype=np.int8)
    unit = (highest <= 1)[:, None, None, None]
    scaled = np.where(unit, values * values.dtype.type(255), values)
    return np.rint(scaled).astype(np.uint8), np.where(highest == 0, 0, np.where(highest <= 1, -1, 1)).astype(np.int8)


def _prepare(values: NDArray[Any], settings: PrepareSettings, notices: Notices) -> Images:
    """Bring images to the size and mode of the settings, one by one."""
    # Imported before the process that reads uploads confines itself, wherever images are prepared.
    from datalens_service.data.intake.preparation.pictures import fit_picture

    channels = settings.settled(values.shape[3]).channels
    images = np.empty((len(values), settings.height, settings.width, channels), dtype=np.uint8)
    scaled = np.zeros(len(values), dtype=np.int8)
    for row in range(len(values)):
        image, scaled[row] = _eight_bits(values[row : row + 1], row, settings)
        images[row], changes = fit_picture(Image.fromarray(image[..., 0] if image.shape[2] == 1 else image), settings)
        for change in (*changes, *((NoticeCode.WINDOW_APPLIED,) if scaled[row] == _WINDOWED else ())):
            notices.add(change, [f"image {row}"])
    _check_one_range(scaled)
    return images


def _eight_bits(value: NDArray[Any], row: int, settings: PrepareSettings) -> tuple[Images, int]:
    """Convert one image to bytes, through the window if it has more than 8 bits, and return its range."""
    if value.dtype.itemsize > 1 and settings.window is not None:
        # As `fit_picture`, loaded before.
        from datalens_service.data.intake.preparation.dicom import through_window

        if np.isnan(value).any():
            raise InvalidDataset(_NOT_A_NUMBER.format(row))
        return through_window(value[0].astype(np.float64), *settings.window), _WINDOWED
    images, scaled = _as_bytes(value, row)
    return images[0], int(scaled[0])


def _check_one_range(scaled: NDArray[np.int8]) -> None:
    """Refuse floats of two ranges: a dark image in 0..255 would be taken for a bright one in [0, 1]."""
    if (scaled > 0).any() and (scaled < 0).any():
        raise InvalidDataset(
            f"Image {int((scaled < 0).argmax())} has no value above 1 while others reach 255, so its range is not "
            "certain. Convert all images to uint8 and save again."
        )


def _with_axes(values: NDArray[Any], name: str, notices: Notices) -> NDArray[Any]:
    """Bring values into the shape (n, height, width, channels)."""
    if values.ndim == 2:
        side = math.isqrt(values.shape[1])
        notices.add(NoticeCode.FLAT_IMAGES, [f"{name} as {side} by {side}"])
        values = values.reshape(len(values), side, side)
    if values.ndim == 3:
        return values[..., np.newaxis]
    if values.shape[3] in (1, 3):
        return values
    notices.add(NoticeCode.CHANNELS_FIRST, [name])
    return values.transpose(0, 2, 3, 1)
