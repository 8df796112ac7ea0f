"""Encoded images become pixels: PNG and JPEG, 8-bit grey or RGB, one size, nothing but the pixels kept.

An EXIF orientation is applied, so that pixels lie as every viewer shows them.

Pillow's warnings are not turned into errors here, because the warning filter belongs to the whole process; the
process that decodes for the service does (`decode.py`). What it warns about is refused by explicit checks or does
not reach the pixels.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import numpy as np
from PIL import Image

from datalens_service.data.dataset import Images
from datalens_service.data.image_sizes import MAXIMUM_SIDE
from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.data.untrusted.entries import refusing
from datalens_service.data.untrusted.limits import Limits
from datalens_service.data.untrusted.validation_errors import ValidationErrors
from datalens_service.errors import InvalidDataset

SUFFIXES: Final = (".png", ".jpg", ".jpeg")
HEAD_BYTES: Final = 132
MAGIC: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")

_FORMATS = ("PNG", "JPEG")
_ENDS = {"PNG": b"\0\0\0\0IEND\xae\x42\x60\x82", "JPEG": b"\xff\xd9"}
_MODES = ("L", "RGB")
_PNG_BIT_DEPTH = 24
"""Offset of the bit depth in a PNG: signature (8), chunk length and type (8), width and height (8)."""


_ORIENTATION: Final = 0x0112
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""By the value of the EXIF tag `_ORIENTATION`. Pillow's `exif_transpose` also writes EXIF, and fails on odd tags."""


class Picture(NamedTuple):
    """A decoded image.

    Attributes:
        pixels: uint8 (height, width, channels).
        changes: What was changed while it was decoded.
    """

    pixels: Images
    changes: tuple[NoticeCode, ...] = ()


class PictureDecoder(Protocol):
    """Turns one encoded image into pixels: a function of that image and of public settings."""

    @property
    def title(self) -> str:
        """What kinds of files there are."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """What names of files end in, in lower case."""

    def recognises(self, head: bytes) -> bool:
        """Whether the first `HEAD_BYTES` bytes are those of an image."""

    def decode(self, data: bytes, limits: Limits) -> Picture:
        """Pixels of one image.

        Raises:
            InvalidDataset: It cannot be used.
        """

    def read_patient(self, data: bytes) -> str | None:
        """Whose image a DICOM file is, if the decoder reads such files.

        Raises:
            InvalidDataset: The file does not say.
        """


class StrictDecoder:
    """PNG and JPEG as an upload has to bring them: `decode`."""

    title = "PNG and JPEG"
    suffixes = SUFFIXES

    def recognises(self, head: bytes) -> bool:
        """See `PictureDecoder`."""
        return head.startswith(MAGIC)

    def decode(self, data: bytes, limits: Limits) -> Picture:
        """See `PictureDecoder`."""
        return decode(data, limits)

    def read_patient(self, data: bytes) -> str | None:
        """See `PictureDecoder`."""
        return None


STRICT: Final = StrictDecoder()


def is_image_name(name: str, suffixes: tuple[str, ...] = SUFFIXES) -> bool:
    """Whether a file is named like an image."""
    return name.casefold().endswith(suffixes)


def decode(data: bytes, limits: Limits) -> Picture:
    """Pixels of one encoded image.

    Raises:
        InvalidDataset: It is not a complete PNG or JPEG of the accepted kind.
    """
    with (
        refusing("At least one image cannot be decoded. Save each as a complete PNG or JPEG file."),
        Image.open(io.BytesIO(data), formats=_FORMATS) as image,
    ):
        _check(image, data, limits)
        image.load()
        turn = _turn(image)
        pixels = np.asarray(image if turn is None else image.transpose(turn))
    # After decoding: a file that is cut off has another reason.
    _check_end(image.format or "", data)
    changes = () if turn is None else (NoticeCode.ORIENTATION_APPLIED,)
    return Picture(pixels.reshape(*pixels.shape[:2], -1), changes)


def decode_all(
    files: Iterable[tuple[str, Callable[[], bytes]]],
    count: int,
    first: Images | None,
    limits: Limits,
    notices: Notices,
    decoder: PictureDecoder = STRICT,
) -> Images:
    """All images of a split, in order.

    Args:
        files: Name and bytes of each.
        count: How many there are.
        first: An image that all others must be like; None takes the first of these that can be decoded.
        limits: Caps on each image, and on all pixels together.
        notices: Collects the names of images that were changed.
        decoder: Of each image.

    Returns:
        uint8 (count, height, width, channels); (0, 1, 1, 1) for no files.

    Raises:
        UnusableFiles: Naming all that cannot be used.
        InvalidDataset: They are too large together.
    """
    errors = ValidationErrors()
    images = None if first is None else _room(first, count, limits)
    for row, (name, read) in enumerate(files):
        try:
            image, changes = decoder.decode(read(), limits)
            images = _room(image, count, limits) if images is None else images
            _check_alike(image, images)
            images[row] = image
        except InvalidDataset as error:
            errors.bad(name, error.detail)
        else:
            errors.good()
            for change in changes:
                notices.add(change, [name])
    errors.raise_if_any()
    return np.empty((0, 1, 1, 1), dtype=np.uint8) if images is None else images


def _room(first: Images, count: int, limits: Limits) -> Images:
    """Memory for all images, after checking how much that is."""
    if max(first.shape[:2]) > MAXIMUM_SIDE:
        raise InvalidDataset(
            f"Images may measure at most {MAXIMUM_SIDE} pixels on each side. Resize them: datalens prepare, or "
            "⟦prepare_size⟧ at the upload."
        )
    if first.size * count > limits.uncompressed_bytes:
        raise InvalidDataset(f"The images unpack to more than the {limits.uncompressed_bytes} bytes accepted.")
    return np.empty((count, *first.shape), dtype=np.uint8)


def _check_alike(image: Images, images: Images) -> None:
    height, width, channels = images.shape[1:]
    if image.shape != (height, width, channels):
        raise InvalidDataset(
            f"All images must be {width} by {height} pixels, {'grey' if channels == 1 else 'RGB'}, like the first "
            "one; at least one differs. Resize or convert them: datalens prepare, or ⟦prepare_size⟧ at the "
            "upload."
        )


def _check(image: Image.Image, data: bytes, limits: Limits) -> None:
    """What the header says, before anything is decoded."""
    if image.width * image.height > limits.image_pixels:
        raise InvalidDataset(f"At least one image has more than {limits.image_pixels} pixels. Resize the images.")
    # Pillow hands out 16-bit RGB as 8-bit, without a word.
    wrong_depth = image.format == "PNG" and data[_PNG_BIT_DEPTH] != 8
    if image.mode not in _MODES or wrong_depth or "transparency" in image.info:
        raise InvalidDataset(
            "Images must be 8-bit grey or RGB, without palette, transparency or animation. Convert them with "
            "datalens prepare, or ⟦prepare_size⟧ at the upload."
        )
    # A JPEG with several pictures counts as animated, too.
    if getattr(image, "is_animated", False):
        raise InvalidDataset("At least one image is animated. Save a single frame of each.")


def _turn(image: Image.Image) -> Image.Transpose | None:
    """How EXIF says that the pixels are to be turned; EXIF that cannot be read says nothing."""
    try:
        return _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - Pillow does not document what hostile bytes raise, and warnings may be errors
        return None


def _check_end(file_format: str, data: bytes) -> None:
    """A file that is something else as well, for example an archive, has that behind its end."""
    if not data.rstrip(b"\0").endswith(_ENDS[file_format]):
        raise InvalidDataset("At least one image file has something behind the image. Save the images again.")
