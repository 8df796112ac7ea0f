"""Encoded images become pixels: PNG and JPEG, 8-bit grey or RGB, one size, nothing but the pixels kept.

An EXIF orientation is applied, so that pixels lie as every viewer shows them.

Pillow's warnings are not turned into errors here, because the warning filter belongs to the whole process; the
process that decodes for the service does (`decode.py`). What it warns about is refused by explicit checks or does
not reach the pixels.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from datalens_service.data.dataset import Images
from datalens_service.data.image_sizes import MAXIMUM_SIDE
from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.data.untrusted.limits import Limits
from datalens_service.data.untrusted.validation_errors import ValidationErrors
from datalens_service.errors import DatalensError, InvalidDataset

PRIVATE_READS = ("reading the upload",)

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
    """A decoded image."""

    pixels: Images
    changes: tuple[NoticeCode, ...] = ()


class Patient(NamedTuple):
    """Whom a DICOM file shows. Private."""

    id: str
    name: str


class UnreadableImage(InvalidDataset):
    """A file that is no image, or a damaged one: it may be left out. What has another size or mode may not."""


@dataclass(frozen=True)
class PictureDecoder:
    """Turns one encoded image into pixels: a function of that image and of public settings.

    Attributes:
        title: What kinds of files there are.
        suffixes: What names of files end in, in lower case.
        recognises: Whether the first `HEAD_BYTES` bytes are those of an image.
        decode: Pixels of one image.
        read_patient: Whose image a DICOM file is; None where such files are not read. InvalidDataset: it does not say.
    """

    title: str
    suffixes: tuple[str, ...]
    recognises: Callable[[bytes], bool]
    decode: Callable[[bytes, Limits], Picture]
    read_patient: Callable[[bytes], Patient | None] = lambda _data: None


def is_image_name(name: str, suffixes: tuple[str, ...] = SUFFIXES) -> bool:
    """Whether a file is named like an image."""
    return name.casefold().endswith(suffixes)


@contextmanager
def decoding(sentence: str) -> Iterator[None]:
    """Turn whatever a decoder raises on hostile bytes into one refusal.

    Raises:
        UnreadableImage: With `sentence`, for every exception that is not deliberate.
    """
    try:
        yield
    except (DatalensError, MemoryError):
        # Memory is no property of the image: it must not be left out for it.
        raise
    except Exception:  # noqa: BLE001 - Pillow and pydicom do not document what hostile bytes raise
        # The cause may quote file contents or names, so it is not chained.
        raise UnreadableImage(sentence) from None


def decode(data: bytes, limits: Limits) -> Picture:
    """Pixels of one encoded image.

    Raises:
        UnreadableImage: It is not a complete PNG or JPEG.
        InvalidDataset: It is one of a kind that is not accepted.
    """
    with (
        decoding("The image cannot be decoded. Save it as a complete PNG or JPEG file, or set ⟦skip_unreadable⟧."),
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


STRICT: Final = PictureDecoder("PNG and JPEG", SUFFIXES, lambda head: head.startswith(MAGIC), decode)
"""PNG and JPEG as an upload has to bring them."""


class DecodedImages(NamedTuple):
    """Images of a split; `rows`, int64 (n,), are the files they are of: all, unless unreadable ones are left out."""

    images: Images
    rows: NDArray[np.int64]


def decode_all(
    files: Iterable[tuple[str, Callable[[], bytes]]],
    count: int,
    first: Images | None,
    limits: Limits,
    notices: Notices,
    decoder: PictureDecoder = STRICT,
    *,
    skip: bool = False,
) -> DecodedImages:
    """All images of a split, in order; (0, 1, 1, 1) for no files.

    Args:
        files: Name and bytes of each.
        first: An image that all others must be like; None takes the first of these that can be decoded.
        skip: Whether unreadable images are left out; those of another size or mode never are, since which of two
            sizes is right would depend on other images.

    Raises:
        UnusableFiles: Naming all that cannot be used.
        InvalidDataset: They are too large together.
    """
    errors, rows = ValidationErrors(), list[int]()
    images = None if first is None else _room(first, count, limits)
    for row, (name, read) in enumerate(files):
        try:
            image, changes = decoder.decode(read(), limits)
            images = _room(image, count, limits) if images is None else images
            _check_alike(image, images)
            images[len(rows)] = image
        except UnreadableImage as error:
            if skip:
                notices.add(NoticeCode.UNREADABLE_LEFT_OUT, [name])
            else:
                errors.bad(name, error.text)
        except InvalidDataset as error:
            errors.bad(name, error.text)
        else:
            errors.good()
            rows.append(row)
            for change in changes:
                notices.add(change, [name])
    errors.raise_if_any()
    images = np.empty((0, 1, 1, 1), dtype=np.uint8) if images is None else images[: len(rows)]
    return DecodedImages(images, np.array(rows, dtype=np.int64))


def _room(first: Images, count: int, limits: Limits) -> Images:
    """Memory for all images, after checking how much that is."""
    if max(first.shape[:2]) > MAXIMUM_SIDE:
        raise InvalidDataset(
            f"Images may measure at most {MAXIMUM_SIDE} pixels on each side. Resize them: `datalens prepare` on your "
            "machine, or ⟦prepare_size⟧ at the upload."
        )
    if first.size * count > limits.uncompressed_bytes:
        raise InvalidDataset(f"The images unpack to more than the {limits.uncompressed_bytes} bytes accepted.")
    return np.empty((count, *first.shape), dtype=np.uint8)


def _check_alike(image: Images, images: Images) -> None:
    if image.shape != images.shape[1:]:
        raise InvalidDataset(
            f"This image is {_described(image.shape)}, the first one is {_described(images.shape[1:])}: all must be "
            "alike. Resize or convert them: `datalens prepare` on your machine, or ⟦prepare_size⟧ at the upload."
        )


def _described(shape: tuple[int, ...]) -> str:
    height, width, channels = shape
    return f"{width} by {height} pixels, {'grey' if channels == 1 else 'RGB'}"


def _check(image: Image.Image, data: bytes, limits: Limits) -> None:
    """What the header says, before anything is decoded."""
    if image.width * image.height > limits.image_pixels:
        raise UnreadableImage(f"The image has more than {limits.image_pixels:,} pixels. Resize it.")
    # Pillow hands out 16-bit RGB as 8-bit, without a word.
    wrong_depth = image.format == "PNG" and data[_PNG_BIT_DEPTH] != 8
    if image.mode not in _MODES or wrong_depth or "transparency" in image.info:
        raise InvalidDataset(
            "Images must be 8-bit grey or RGB, without palette, transparency or animation. Convert them: `datalens "
            "prepare` on your machine, or ⟦prepare_size⟧ at the upload."
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
        raise UnreadableImage("The file has something behind the image. Save the image again.")
