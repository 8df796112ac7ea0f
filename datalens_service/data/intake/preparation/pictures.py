"""One encoded image becomes pixels of the chosen size and mode: a function of that image and the settings alone."""

from typing import Final

import numpy as np
from PIL import Image, ImageOps

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.preparation import dicom
from datalens_service.data.intake.untrusted.file_kinds import HEAD_BYTES, Use, is_dicom
from datalens_service.data.intake.untrusted.images import Picture, PictureDecoder, check_pixels, decoding, open_picture
from datalens_service.data.intake.untrusted.limits import Limits
from datalens_service.data.notices import NoticeCode
from datalens_service.data.preparation_settings import Colour, Fit, PrepareSettings

_FORMATS: Final = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")

_EIGHT_BIT: Final = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK")
_WITHOUT_COLOUR: Final = ("1", "L", "LA")
_PALETTES: Final = ("P", "PA")
_SIXTEEN_BIT: Final = ("I;16", "I;16B", "I;16L")
_PNG_BIT_DEPTH: Final = 24
_ORIENTATION: Final = 0x0112

_UNREADABLE: Final = (
    "The image cannot be decoded. Save it as a complete PNG, JPEG, BMP, GIF, TIFF or WebP file, or set "
    "⟦skip_unreadable⟧."
)

Changes = tuple[NoticeCode, ...]


def preparing_decoder(settings: PrepareSettings) -> PictureDecoder:
    """Return a decoder of many kinds of images to one size and mode."""
    return PictureDecoder(
        "PNG, JPEG, BMP, GIF, TIFF, WebP and DICOM",
        frozenset({Use.PICTURE, Use.PREPARED_PICTURE}),
        lambda data, limits: prepare_picture(data, settings, limits),
        dicom.read_patient,
        None if settings.colour else lambda channels: preparing_decoder(settings.settled(channels)),
    )


def prepare_picture(data: bytes, settings: PrepareSettings, limits: Limits) -> Picture:
    """Return pixels of one image, uint8 (height, width, channels), and what was changed.

    Raises:
        InvalidDataset: The image is damaged, has too many pixels, or is of a kind that is not accepted.
    """
    with decoding(_UNREADABLE):
        shown, changes = (
            dicom.read_dicom(data, settings, limits)
            if is_dicom(data[:HEAD_BYTES])
            else _read_picture(data, settings, limits)
        )
        picture = fit_picture(shown, settings)
    return Picture(picture.pixels, (*changes, *picture.changes))


def fit_picture(shown: Image.Image, settings: PrepareSettings) -> Picture:
    """Bring a decoded image to the size and mode of the settings, and return what was changed.

    Where the settings leave the mode open, it is grey or RGB as the image itself is.
    """
    mode = {Colour.GREY: "L", Colour.RGB: "RGB", None: _own_mode(shown)}[settings.colour]
    pixels = np.asarray(_fit(shown.convert(mode), settings))
    changes = {
        NoticeCode.CHANNELS_CONVERTED: shown.mode != mode,
        NoticeCode.RESIZED: shown.size != settings.size,
        NoticeCode.PROPORTIONS_CHANGED: settings.fit is Fit.RESIZE and _is_squashed(shown.size, settings),
    }
    made = tuple(code for code, is_so in changes.items() if is_so)
    return Picture(pixels.reshape(settings.height, settings.width, -1), made)


def _own_mode(image: Image.Image) -> str:
    """Return `L` for an image without colour, else `RGB`; a palette is as its pixels show it."""
    if image.mode in _PALETTES:
        red, green, blue = np.moveaxis(np.asarray(image.convert("RGB")), 2, 0)
        return "L" if (red == green).all() and (green == blue).all() else "RGB"
    return "L" if image.mode in _WITHOUT_COLOUR else "RGB"


def _is_squashed(taken: tuple[int, int], settings: PrepareSettings) -> bool:
    """Tell whether an image of this size, scaled in its proportions, would be a pixel or more off the chosen size."""
    (width, height), (wide, high) = taken, settings.size
    return abs(width * high - wide * height) >= min(width, height)


def _read_picture(data: bytes, settings: PrepareSettings, limits: Limits) -> tuple[Image.Image, Changes]:
    with open_picture(data, _FORMATS) as image:
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
        on_white = Image.alpha_composite(Image.new("RGBA", opaque.size, "white"), opaque)
        return on_white.convert(_own_mode(turned)), (*changes, NoticeCode.TRANSPARENCY_REMOVED)


def _check(image: Image.Image, data: bytes, settings: PrepareSettings, limits: Limits) -> Changes:
    """Check the header before anything is decoded, and turn to the chosen frame, since frames may differ."""
    check_pixels(image.width, image.height, limits)
    frames = getattr(image, "n_frames", 1)
    dicom.check_frame(frames, settings)
    if frames > 1:
        image.seek(settings.frame - 1)
        check_pixels(image.width, image.height, limits)
    if image.mode in _SIXTEEN_BIT:
        if settings.window is None:
            raise InvalidDataset("The image is 16-bit grey. Name the values to show in ⟦prepare_window⟧.")
    # Pillow hands out 16-bit RGB as 8-bit, without a word.
    elif image.mode not in _EIGHT_BIT or (image.format == "PNG" and data[_PNG_BIT_DEPTH] > 8):
        raise InvalidDataset("The image is neither 8-bit nor 16-bit grey. Save it as 8-bit grey or RGB.")
    return (NoticeCode.FRAME_SELECTED,) if frames > 1 else ()


def _through_window(image: Image.Image, settings: PrepareSettings) -> Image.Image:
    low, high = settings.window or (0, 65535)
    return Image.fromarray(dicom.through_window(np.asarray(image).astype(np.float64), low, high))


def _fit(image: Image.Image, settings: PrepareSettings) -> Image.Image:
    if image.size == settings.size:
        return image
    if settings.fit is Fit.CROP:
        return ImageOps.fit(image, settings.size, Image.Resampling.LANCZOS)
    return image.resize(settings.size, Image.Resampling.LANCZOS)
