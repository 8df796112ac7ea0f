"""Scattering as an encoder: fixed wavelets, for images of any number of channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Flag
from datalens_service.data.dataset import Schema
from datalens_service.models.encoders.base import Encoder

if TYPE_CHECKING:
    from datalens_service.models.encoders.network import ScatteringNetwork

SCATTERING_MAPS: Final = 81
"""Maps of one channel."""
RGB: Final = 3


class ScatteringEncoder(Encoder):
    """Two scales and eight angles; built in, without weights."""

    name: Literal["scattering"] = "scattering"
    colours: Literal["separate", "opponent"] = Field(
        default="separate",
        exclude_if=lambda colours: colours == "separate",
        description="Wavelets see each channel, or of RGB images brightness and two differences of colours.",
    )
    mirrored: Flag = Field(
        default=False,
        exclude_if=lambda mirrored: not mirrored,
        description="Take the mean of the maps of an image and of its mirror image: for classes that do not change "
        "by it, such as photographs of things, and unlike digits. Encoding takes twice as long.",
    )

    def check(self, schema: Schema) -> None:
        if self.colours == "opponent" and schema.channels != RGB:
            raise InvalidSpec(f"Opponent colours are those of RGB images, not of {schema.channels} channels.")

    def dimensions(self, schema: Schema) -> int:
        return SCATTERING_MAPS * schema.channels * -(-schema.height // 4) * -(-schema.width // 4)

    def architecture(self, schema: Schema) -> ScatteringNetwork:
        from datalens_service.models.encoders.network import ScatteringNetwork

        return ScatteringNetwork(schema.channels, opponent=self.colours == "opponent", mirrored=self.mirrored)
