"""A feature extractor for torch-fidelity that learns nothing: three layers of random convolutions.

Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models", section 3.4: where no trained
network knows such images, one with random weights compares them better than one that was trained on others. Its 64
features are averages over all places: they tell edges, textures and colours apart, on few images, too, but not what an
image shows. Weights are the same for all images with as many channels, so figures can be compared from job to job.
"""

import hashlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch_fidelity import FeatureExtractorBase, register_feature_extractor

NAME: Final = "datalens-random-convolutions"

_FEATURES: Final = "features"
_SIDE: Final = 3
_MAPS: Final = (16, 32, 64)
_LARGEST_SIDE: Final = 64
_POOLED_FROM: Final = 8
"""Pixels on a side. On a map of one place filters of differences would see nothing."""

_GAIN: Final = 40.0
"""Features then measure about 1, as the kernel of KID wants them: 1.2 on MNIST, a quarter on photographs."""


class RandomExtractor(FeatureExtractorBase):  # type: ignore[misc]
    """Random convolutions as torch-fidelity wants them."""

    def __init__(
        self, name: str, features_list: list[str], feature_extractor_weights_path: str, **_settings: Any
    ) -> None:
        super().__init__(name, features_list)
        for key, value in load_file(feature_extractor_weights_path).items():
            self.register_buffer(key, value)

    @staticmethod
    def get_provided_features_list() -> tuple[str, ...]:
        """One output."""
        return (_FEATURES,)

    @staticmethod
    def get_default_feature_layer_for_metric(_metric: str) -> str:
        """The same for all figures."""
        return _FEATURES

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Features (n, 64) of uint8 images (n, channels, height, width), sides from 4, larger than 64 averaged down."""
        height, width = (min(side, _LARGEST_SIDE) for side in images.shape[2:])
        # Convolutions are twice as fast with channels last.
        maps = (images.float() / 255).contiguous(memory_format=torch.channels_last)
        maps = nn.functional.adaptive_avg_pool2d(maps, (height, width))
        for layer in range(len(_MAPS)):
            if layer and min(maps.shape[2:]) >= _POOLED_FROM:
                maps = nn.functional.avg_pool2d(maps, 2)
            padded = nn.functional.pad(maps, (_SIDE // 2,) * 4, mode="replicate")
            maps = nn.functional.conv2d(padded, getattr(self, f"layer{layer}")).relu()
        return (_GAIN * maps.mean(dim=(2, 3)),)


def write(channels: int, path: Path) -> str:
    """Write the weights for images with so many channels; SHA-256 of the file, hexadecimal."""
    # A public seed: nothing that protects anything is drawn here.
    rng = np.random.default_rng(0)
    inputs = (channels, *_MAPS)
    shapes = [(maps, inputs[layer], _SIDE, _SIDE) for layer, maps in enumerate(_MAPS)]
    filters = {f"layer{layer}": _filters(shape, rng, edges=layer > 0) for layer, shape in enumerate(shapes)}
    save_file(filters, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _filters(shape: tuple[int, ...], rng: np.random.Generator, *, edges: bool) -> Tensor:
    """Filters of length 1; those of later layers see differences alone, not brightness."""
    values = rng.standard_normal(shape)
    if edges:
        values -= values.mean(axis=(2, 3), keepdims=True)
    lengths = np.sqrt(np.square(values).sum(axis=(1, 2, 3), keepdims=True))
    return torch.from_numpy((values / lengths).astype(np.float32))


register_feature_extractor(NAME, RandomExtractor)
