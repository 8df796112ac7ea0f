"""Encoded images become pixels: PNG and JPEG, 8-bit grey or RGB, one size, nothing but the pixels kept.

An EXIF orientation is applied, so that pixels lie as every viewer shows them.

Pillow's warnings are not turned into errors here, because the warning filter belongs to the whole process; the
process that decodes for the service does (`decode.py`). Whatever it warns about is refused by explicit checks or does
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
from PIL.JpegImagePlugin import JpegImageFile

from datalens_service.base.errors import DatalensError, InvalidDataset
from datalens_service.data.dataset import Images
from datalens_service.data.image_sizes import MAXIMUM_SIDE
from datalens_service.data.intake.untrusted.file_kinds import HEAD_BYTES, FileKind, Use, find_kind
from datalens_service.data.intake.untrusted.limits import PREPARE_LIMITS, Limits
from datalens_service.data.intake.untrusted.shapes import AlikeImages, Shape, TooLarge
from datalens_service.data.intake.untrusted.validation_errors import ValidationErrors
from datalens_service.data.notices import NoticeCode, Notices

PRIVATE_READS = ("reading the upload",)

_PREPARE: Final = "`datalens prepare` on your machine, or ⟦prepare_size⟧ at the upload"
_JPEG: Final = b"\xff\xd8\xff"
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
"""Turns by the value of the EXIF tag `_ORIENTATION`. Pillow's `exif_transpose` also writes EXIF, and fails on odd tags.
"""


class Picture(NamedTuple):
    pixels: Images
    changes: tuple[NoticeCode, ...] = ()


class Patient(NamedTuple):
    """The patient of a DICOM file; both are empty in an anonymised one. Private."""

    id: str
    name: str


class NoPatient(InvalidDataset):
    """A DICOM file that can be read and does not name its patient."""


@dataclass(frozen=True)
class PictureDecoder:
    """Turns one encoded image into pixels: a function of that image and of public settings.

    Attributes:
        title: Names of the kinds of files.
        uses: Uses of the kinds of files that it decodes.
        decode: Returns pixels of one image.
        read_patient: Returns the patient of a DICOM file; None where such files are not read. It raises NoPatient if
            the file names none, and InvalidDataset if it cannot be read.
        with_channels: Returns the decoder for images of so many channels; None where that is settled.
    """

    title: str
    uses: frozenset[Use]
    decode: Callable[[bytes, Limits], Picture]
    read_patient: Callable[[bytes], Patient | None] = lambda _data: None
    with_channels: "Callable[[int], PictureDecoder] | None" = None

    def reads(self, kind: FileKind | None) -> bool:
        """Tell whether it decodes files of this kind."""
        return kind is not None and kind.use in self.uses

    def check_kind(self, kind: FileKind | None) -> None:
        """Refuse a file whose first bytes say that it is something else.

        Raises:
            InvalidDataset: Names its kind, and what to do.
        """
        if kind is None or self.reads(kind):
            return
        if kind.use is Use.PREPARED_PICTURE:
            raise InvalidDataset(f"This is {kind.name}, which is read once you choose one size for all: {_PREPARE}.")
        raise InvalidDataset(f"This is {kind.name}, which is not read. {kind.advice}")


@contextmanager
def decoding(sentence: str) -> Iterator[None]:
    """Turn any error of a decoder on hostile bytes into one refusal.

    Raises:
        InvalidDataset: With `sentence`, for every exception that is not deliberate.
    """
    try:
        yield
    except (DatalensError, MemoryError):
        # Memory is no property of the image: it must not be left out for it.
        raise
    except Exception:  # noqa: BLE001 - Pillow and pydicom do not document what hostile bytes raise
        # The cause may quote file contents or names, so it is not chained.
        raise InvalidDataset(sentence) from None


def decode(data: bytes, limits: Limits) -> Picture:
    """Return the pixels of one encoded image.

    Raises:
        InvalidDataset: It is not a complete PNG or JPEG, or of a kind that is not accepted.
    """
    with (
        decoding("The image cannot be decoded. Save it as a complete PNG or JPEG file, or set ⟦skip_unreadable⟧."),
        open_picture(data, _FORMATS) as image,
    ):
        _check(image, data, limits)
        image.load()
        turn = _turn(image)
        pixels = np.asarray(image if turn is None else image.transpose(turn))
    # After decoding: a file that is cut off has another reason.
    _check_end(image.format or "", data)
    changes = () if turn is None else (NoticeCode.ORIENTATION_APPLIED,)
    return Picture(pixels.reshape(*pixels.shape[:2], -1), changes)


STRICT: Final = PictureDecoder("PNG and JPEG", frozenset({Use.PICTURE}), decode)
"""Decodes PNG and JPEG in the form that an upload must have."""


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
    """Decode all images of a split, in order; (0, 1, 1, 1) for no files.

    Args:
        files: Name and bytes of each.
        first: An image that all others must be like; None takes the first of these that can be decoded.
        skip: True if unreadable images are left out, whatever makes them so.
            Those of another size or mode never are, since which of two sizes is right would depend on other images.

    Raises:
        UnusableFiles: Names all that cannot be used.
        MixedShapes: They are not alike.
        InvalidDataset: They are too large together.
    """
    if first is not None and decoder.with_channels is not None:
        decoder = decoder.with_channels(first.shape[2])
    errors, rows, grey = ValidationErrors(), list[int](), list[str]()
    together = AlikeImages(first, count, limits, widens=decoder.with_channels is not None)
    for row, (name, read) in enumerate(files):
        try:
            image, changes = _decode_one(read(), decoder, limits)
        except TooLarge as error:
            together.add_too_large(error.shape)
        except InvalidDataset as error:
            # A refusal here concerns this one file, which may be left out.
            errors.bad(name, error.text)
            notices.add(NoticeCode.UNREADABLE_LEFT_OUT, [name] if skip else [])
        else:
            errors.good()
            rows.append(row)
            together.add(image)
            grey += [name] if image.shape[2] == 1 else []
            for change in changes:
                notices.add(change, [name])
    together.check(ValidationErrors() if skip and rows else errors)
    if together.widened:
        notices.add(NoticeCode.CHANNELS_CONVERTED, grey)
    return DecodedImages(together.images[: len(rows)], np.array(rows, dtype=np.int64))


def _decode_one(data: bytes, decoder: PictureDecoder, limits: Limits) -> Picture:
    """Decode or refuse an image; there is no other place where one becomes pixels."""
    decoder.check_kind(find_kind(data[:HEAD_BYTES]))
    return decoder.decode(data, limits)


def open_picture(data: bytes, formats: tuple[str, ...]) -> Image.Image:
    """Open a picture and read its header.

    A JPEG is the picture it shows: cameras write further ones behind it (MPO, CIPA DC-007), which Pillow would take for
    frames of an animation, or warn of.
    """
    return JpegImageFile(io.BytesIO(data)) if data.startswith(_JPEG) else Image.open(io.BytesIO(data), formats=formats)


def _check(image: Image.Image, data: bytes, limits: Limits) -> None:
    """Check the header before anything is decoded."""
    # Pillow hands out 16-bit RGB as 8-bit, without a word.
    wrong_depth = image.format == "PNG" and data[_PNG_BIT_DEPTH] != 8
    if image.mode not in _MODES or wrong_depth or "transparency" in image.info:
        raise InvalidDataset(
            f"Images must be 8-bit grey or RGB, without palette, transparency or animation. Convert them: {_PREPARE}."
        )
    if getattr(image, "is_animated", False):
        raise InvalidDataset(f"The image is animated. Its first frame is read by {_PREPARE}; or save one frame of it.")
    check_pixels(image.width, image.height, limits if max(image.size) <= MAXIMUM_SIDE else PREPARE_LIMITS)
    if max(image.size) > MAXIMUM_SIDE:
        raise TooLarge(Shape(image.width, image.height, len(image.getbands())))


def check_pixels(width: int, height: int, limits: Limits) -> None:
    """Refuse an image that would unpack to too many pixels, before it is decoded."""
    if width * height > limits.image_pixels:
        raise InvalidDataset(f"The image has more than {limits.image_pixels:,} pixels. Resize it.")


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return the turn that EXIF asks for; unreadable EXIF asks for none."""
    try:
        return _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - Pillow does not document what hostile bytes raise, and warnings may be errors
        return None


def _check_end(file_format: str, data: bytes) -> None:
    """Refuse a file with something behind its end, which may be something else as well, for example an archive."""
    if not data.rstrip(b"\0").endswith(_ENDS[file_format]):
        raise InvalidDataset("The file has something behind the image. Save the image again.")
