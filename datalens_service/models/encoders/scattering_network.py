"""Scattering of an image, normalised in groups of its channels."""

from typing import ClassVar, Final

from torch import Tensor, nn

from datalens_service.models.encoders.network import EncoderNetwork
from datalens_service.models.scattering import MAPS, Scattering

_GROUPS: Final = 27


class ScatteringNetwork(EncoderNetwork):
    """Features of one image by `Scattering`."""

    images_at_once: ClassVar[int] = 256

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scattering = Scattering()
        self.normalise = nn.GroupNorm(_GROUPS, MAPS * channels, affine=False)

    def forward(self, images: Tensor) -> Tensor:
        """(n, features), at most 1 long: the mean square of a group is 1 before the division, or less."""
        normalised = self.normalise(self.scattering(images)).flatten(start_dim=1)
        features: Tensor = normalised / normalised.shape[1] ** 0.5
        return features
