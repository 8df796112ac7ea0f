"""One encoded image becomes pixels of the chosen size and mode: a function of that image and the settings alone."""

import io
from typing import Final

import numpy as np
from PIL import Image, ImageOps

from datalens_service.data.notices import NoticeCode
from datalens_service.data.preparation import dicom, kinds
from datalens_service.data.preparation_settings import Colour, Fit, PrepareSettings
from datalens_service.data.untrusted.images import Picture, PictureDecoder, UnreadableImage, decoding
from datalens_service.data.untrusted.limits import Limits
from datalens_service.errors import InvalidDataset

FORMATS: Final = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")

_EIGHT_BIT: Final = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK")
_SIXTEEN_BIT: Final = ("I;16", "I;16B", "I;16L")
_PNG_BIT_DEPTH: Final = 24
_ORIENTATION: Final = 0x0112

_UNREADABLE: Final = (
    "The image cannot be decoded. Save it as a complete PNG, JPEG, BMP, GIF, TIFF or WebP file, or set "
    "⟦skip_unreadable⟧."
)

Changes = tuple[NoticeCode, ...]


def preparing_decoder(settings: PrepareSettings) -> PictureDecoder:
    """Decodes images of many kinds to one size and mode."""
    return PictureDecoder(
        kinds.TITLE,
        kinds.SUFFIXES,
        kinds.is_preparable,
        lambda data, limits: prepare_picture(data, settings, limits),
        dicom.read_patient,
    )


def prepare_picture(data: bytes, settings: PrepareSettings, limits: Limits) -> Picture:
    """Pixels of one image, uint8 (height, width, channels), and what was changed.

    Raises:
        UnreadableImage: It is damaged, or has too many pixels.
        InvalidDataset: It is of a kind that is not accepted.
    """
    with decoding(_UNREADABLE):
        shown, changes = (
            dicom.read_dicom(data, settings, limits) if kinds.is_dicom(data) else _read_picture(data, settings, limits)
        )
        picture = fit_picture(shown, settings)
    return Picture(picture.pixels, (*changes, *picture.changes))


def fit_picture(shown: Image.Image, settings: PrepareSettings) -> Picture:
    """A decoded image at the size and in the mode of the settings, and what was changed."""
    channels = "L" if settings.colour is Colour.GREY else "RGB"
    converted, fitted = shown.mode != channels, shown.size != settings.size
    pixels = np.asarray(_fit(shown.convert(channels), settings))
    changes = (NoticeCode.CHANNELS_CONVERTED,) * converted + (NoticeCode.RESIZED,) * fitted
    return Picture(pixels.reshape(settings.height, settings.width, -1), changes)


def _read_picture(data: bytes, settings: PrepareSettings, limits: Limits) -> tuple[Image.Image, Changes]:
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        changes = _check(image, data, settings, limits)
        image.load()
        if image.mode in _SIXTEEN_BIT:
            return _through_window(image, settings), (*changes, NoticeCode.WINDOW_APPLIED)
        turned = ImageOps.exif_transpose(image)
        if image.getexif().get(_ORIENTATION, 1) != 1:
            changes += (NoticeCode.ORIENTATION_APPLIED,)
        if not turned.has_transparency_data:
            return turned, changes
        opaque = turned.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", opaque.size, "white"), opaque), (
            *changes,
            NoticeCode.TRANSPARENCY_REMOVED,
        )


def _check(image: Image.Image, data: bytes, settings: PrepareSettings, limits: Limits) -> Changes:
    """What the header says, before anything is decoded; turns to the chosen frame, since frames may differ."""
    _check_size(image, limits)
    frames = getattr(image, "n_frames", 1)
    dicom.check_frame(frames, settings)
    if frames > 1:
        image.seek(settings.frame - 1)
        _check_size(image, limits)
    if image.mode in _SIXTEEN_BIT:
        if settings.window is None:
            raise InvalidDataset("The image is 16-bit grey. Name the values to show in ⟦prepare_window⟧.")
    # Pillow hands out 16-bit RGB as 8-bit, without a word.
    elif image.mode not in _EIGHT_BIT or (image.format == "PNG" and data[_PNG_BIT_DEPTH] > 8):
        raise InvalidDataset("The image is neither 8-bit nor 16-bit grey. Save it as 8-bit grey or RGB.")
    return (NoticeCode.FRAME_SELECTED,) if frames > 1 else ()


def _check_size(image: Image.Image, limits: Limits) -> None:
    if image.width * image.height > limits.image_pixels:
        raise UnreadableImage(f"The image has more than {limits.image_pixels:,} pixels. Resize it.")


def _through_window(image: Image.Image, settings: PrepareSettings) -> Image.Image:
    low, high = settings.window or (0, 65535)
    return Image.fromarray(dicom.through_window(np.asarray(image).astype(np.float64), low, high))


def _fit(image: Image.Image, settings: PrepareSettings) -> Image.Image:
    if image.size == settings.size:
        return image
    if settings.fit is Fit.CROP:
        return ImageOps.fit(image, settings.size, Image.Resampling.LANCZOS)
    return image.resize(settings.size, Image.Resampling.LANCZOS)
