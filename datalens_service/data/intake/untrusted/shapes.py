"""Sizes and modes of the images of an upload, which must be alike: where they are not, their owner chooses one."""

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import Images
from datalens_service.data.image_sizes import MAXIMUM_SIDE, MINIMUM_SIDE, ImageSize
from datalens_service.data.intake.untrusted.limits import Limits
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles, ValidationErrors

PRIVATE_READS = ("reading the upload",)

_USUAL_SIDE: Final = 64
"""Side of grey images with 4,096 numbers, which all methods take as they are."""
_LEAST_SIDE: Final = 16
"""The least side that all convolutions can work with."""
_ALIKE: Final = 1.1
"""Proportions that differ by less than this factor are the same to the eye."""


class Shape(NamedTuple):
    """Size and mode of an image; pixels, and 1 channel for grey or 3 for RGB."""

    width: int
    height: int
    channels: int


class TooLarge(InvalidDataset):
    """A sound image with a longer side than images may have: a matter of sizes, which are chosen for all images."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(f"Images may measure at most {MAXIMUM_SIDE} pixels on each side.")
        self.shape = shape


class MixedShapes(InvalidDataset):
    """Images that are not alike.

    Attributes:
        shapes: Number of images of each shape. Private.
        bad_files: Those that cannot be used for other reasons. Private.
    """

    def __init__(self, shapes: Counter[Shape], bad_files: tuple[BadFile, ...] = ()) -> None:
        super().__init__(f"{_describe(shapes)}. Resize or convert them, so that all are alike.")
        self.shapes = shapes
        self.bad_files = bad_files


class AlikeImages:
    """Memory for all images of a split, as far as they are alike.

    Args:
        first: An image that all must be like; None takes the first that comes.
        count: Most images that may come.
        widens: True if grey images become colour beside others in colour.

    Attributes:
        images: uint8 (count, height, width, channels), filled from the start.
        shapes: Number of images of each shape that came.
        widened: True if grey images became colour.
    """

    def __init__(self, first: Images | None, count: int, limits: Limits, *, widens: bool) -> None:
        self.images: Images = np.empty((0, 1, 1, 1), dtype=np.uint8)
        self.shapes: Counter[Shape] = Counter()
        self.widened = False
        self._count, self._limits, self._widens, self._is_first = count, limits, widens, first is None
        self._filled = 0
        if first is not None:
            self._make_room(first.shape)

    def add(self, image: Images) -> None:
        """Put an image behind the others, if it is like them."""
        if self._is_first:
            self._make_room(image.shape)
            self._is_first = False
        height, width, channels = image.shape
        self.shapes[Shape(width, height, channels)] += 1
        if self._widens and image.shape[:2] == self.images.shape[1:3] and channels != self.images.shape[3]:
            image = self._widen(image)
        if image.shape == self.images.shape[1:]:
            self.images[self._filled] = image
            self._filled += 1

    def add_too_large(self, shape: Shape) -> None:
        """Count an image that is not decoded."""
        self.shapes[shape] += 1

    def check(self, errors: ValidationErrors) -> None:
        """End reading if files are unreadable, or not all are alike.

        Raises:
            UnusableFiles: Names the unreadable ones, if nothing else is wrong.
            MixedShapes: Images are of several shapes, too large, or unlike the first.
        """
        if self._filled < self.shapes.total():
            raise MixedShapes(self.shapes, errors.bad_files)
        errors.raise_if_any()

    def _widen(self, image: Images) -> Images:
        """Turn the image, and all before it, to colour."""
        self.widened = True
        if self.images.shape[3] == 1:
            self.images = np.repeat(self.images, 3, axis=3)
        return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image

    def _make_room(self, shape: tuple[int, ...]) -> None:
        if int(np.prod(shape)) * self._count > self._limits.uncompressed_bytes:
            raise InvalidDataset(
                f"The images unpack to more than the {self._limits.uncompressed_bytes} bytes accepted."
            )
        self.images = np.empty((self._count, *shape), dtype=np.uint8)


def check_alike(shapes: Counter[Shape], bad_files: tuple[BadFile, ...] = ()) -> None:
    """Offer one size for the images of all splits, unless they have one.

    Args:
        shapes: Number of images of each shape.
        bad_files: Files that cannot be used for other reasons.

    Raises:
        InvalidDataset: States the number of images, their sizes, and one that would do.
    """
    if len(shapes) < 2 and max(max(shape[:2]) for shape in shapes) <= MAXIMUM_SIDE:
        return
    size = suggest_size(shapes)
    offer = (
        f"{_describe(shapes)}: choose one size for all, for example {size}, in ⟦prepare_size⟧ at the upload, or by "
        "`datalens prepare` on your machine."
    )
    if len({shape.channels for shape in shapes}) > 1:
        offer += " Grey images then become colour, unless ⟦prepare_colour⟧ is grey."
    if bad_files:
        raise UnusableFiles(bad_files, shapes.total() + len(bad_files), f"{offer} Other files cannot be read.")
    raise InvalidDataset(offer)


def suggest_size(shapes: Counter[Shape]) -> ImageSize:
    """Suggest a size: as large as the smallest image, up to 64 pixels, in proportions that all share."""
    sizes = {ImageSize(*shape[:2]) for shape in shapes}
    if len(sizes) == 1 and max(next(iter(sizes))) <= MAXIMUM_SIDE:
        return sizes.pop()
    ratios = [size.width / size.height for size in sizes]
    lowest, highest = min(ratios), max(ratios)
    are_square = lowest >= 1 / _ALIKE and highest <= _ALIKE
    if are_square or highest > _ALIKE * lowest:
        side = max(MINIMUM_SIDE, min(_USUAL_SIDE, *(min(size) for size in sizes)))
        return ImageSize(side, side)
    longer = max(MINIMUM_SIDE, min(_USUAL_SIDE, *(max(size) for size in sizes)))
    shorter = min(longer, max(_LEAST_SIDE, round(longer * min(lowest, 1 / highest))))
    return ImageSize(longer, shorter) if lowest > 1 else ImageSize(shorter, longer)


def _describe(shapes: Counter[Shape]) -> str:
    count = shapes.total()
    sides = [side for shape in shapes for side in shape[:2]]
    sizes = {shape[:2] for shape in shapes}
    if len(sizes) > 1:
        return f"Your {count:,} images have different sizes, {min(sides):,} to {max(sides):,} pixels"
    width, height = sizes.pop()
    if max(sides) > MAXIMUM_SIDE:
        return (
            f"Your {count:,} images measure {width:,} by {height:,} pixels, and at most {MAXIMUM_SIDE} are accepted on "
            "each side"
        )
    grey = sum(number for shape, number in shapes.items() if shape.channels == 1)
    return (
        f"Your {count:,} images of {width} by {height} pixels are partly grey ({grey:,}), partly RGB ({count - grey:,})"
    )
