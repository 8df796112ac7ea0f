"""The owner's choices for all images when they are brought to one size; public."""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from datalens_service.base.fields import Frozen, Integer
from datalens_service.data.image_sizes import MAXIMUM_SIDE, MINIMUM_SIDE, PATTERN, ImageSize, parse_size

SizeText = Annotated[
    str,
    BeforeValidator(lambda value: str(parse_size(value))),
    WithJsonSchema(
        {"type": ["string", "integer"], "pattern": f"^{PATTERN}$", "minimum": MINIMUM_SIDE, "maximum": MAXIMUM_SIDE}
    ),
]
"""A size in a request, in the shortest notation."""


class Fit(StrEnum):
    """The ways to bring an image of another size to the chosen one."""

    RESIZE = "resize"
    CROP = "crop"


class Colour(StrEnum):
    """Channels of all prepared images."""

    GREY = "grey"
    RGB = "rgb"


class PrepareSettings(Frozen):
    """Settings that are the same for every image, so that a prepared image depends on no other image.

    Attributes:
        fit: Resize the whole image, or scale it until it covers the size and crop the centre.
        colour: Grey or RGB; None: RGB if at least one training image is in colour. It is settled once the images were
            read, so that what is kept says which of the two it is.
        window: Values that become 0 and 255 where images have more than 8 bits: stored values of 16-bit grey, modality
            units of DICOM (Hounsfield for CT). None takes the window that a DICOM file names, and refuses all others.
        frame: Number of the frame that is read from files with several, from 1.
    """

    width: Integer = Field(ge=MINIMUM_SIDE, le=MAXIMUM_SIDE)
    height: Integer = Field(ge=MINIMUM_SIDE, le=MAXIMUM_SIDE)
    fit: Fit = Fit.RESIZE
    colour: Colour | None = None
    window: tuple[Integer, Integer] | None = None
    frame: Integer = Field(default=1, ge=1)

    @property
    def size(self) -> ImageSize:
        return ImageSize(self.width, self.height)

    @property
    def channels(self) -> int:
        return 1 if self.colour is Colour.GREY else 3

    def settled(self, channels: int) -> Self:
        """Settle a colour that was left open, for training images of so many channels."""
        return self.model_copy(update={"colour": self.colour or (Colour.GREY if channels == 1 else Colour.RGB)})

    def sentence(self) -> str:
        """Describe in a sentence what was done to every image."""
        how = "scaled and cropped in the centre" if self.fit is Fit.CROP else "resized as a whole"
        colour = "grey" if self.colour is Colour.GREY else "RGB"
        window = "" if self.window is None else f" Values from {self.window[0]} to {self.window[1]} became 0 to 255."
        return (
            f"The private images were prepared: those of another size were {how} to {self.width} by {self.height} "
            f"pixels, in 8-bit {colour}; of files with several frames, frame {self.frame} was read.{window}"
        )

    @model_validator(mode="before")
    @classmethod
    def _read_stored(cls, value: Any) -> Any:
        # The window is an array in JSON.
        if not isinstance(value, dict):
            return value
        return {name: tuple(one) if isinstance(one, list) else one for name, one in value.items()}

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.window is not None and self.window[0] >= self.window[1]:
            raise ValueError("The window's first value must be below its second.")
        return self
