"""Scattering as an encoder: fixed wavelets, for images of any number of channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from datalens_service.data.dataset import Schema
from datalens_service.models.encoders.base import Encoder

if TYPE_CHECKING:
    from datalens_service.models.encoders.network import ScatteringNetwork

SCATTERING_MAPS: Final = 81
"""Of one channel."""


class ScatteringEncoder(Encoder):
    """Two scales and eight angles; built in, without weights."""

    name: Literal["scattering"] = "scattering"

    def check(self, schema: Schema) -> None:
        """It takes every image."""

    def dimensions(self, schema: Schema) -> int:
        """Maps of each channel, on a grid four times as coarse as the image."""
        return SCATTERING_MAPS * schema.channels * -(-schema.height // 4) * -(-schema.width // 4)

    def architecture(self, schema: Schema) -> ScatteringNetwork:
        """Filters are made, not learnt."""
        from datalens_service.models.encoders.network import ScatteringNetwork

        return ScatteringNetwork(schema.channels)
