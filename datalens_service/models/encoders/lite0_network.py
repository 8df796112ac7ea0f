"""The layers of EfficientNet-Lite0 (Tan and Le 2019, without squeeze and excitation), each with its normalisation.

An average and a deviation of a batch norm are constants after training, so they are a part of the convolution before.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.models.encoders.network import EncoderNetwork

SIDE: Final = 128
"""Side in pixels that images are resized to."""
CENTER, SCALE = 127 / 255, 255 / 128
"""Centre and scale of the range in which the weights were learnt."""
_FLOOR: Final = 1e-3
_LAST_MAPS: Final = 1280


class BlockStage(NamedTuple):
    blocks: int
    window: int
    stride: int
    widening: int
    maps: int


_FIRST_MAPS: Final = 32
STAGES: Final = (
    BlockStage(1, 3, 1, 1, 16),
    BlockStage(2, 3, 2, 6, 24),
    BlockStage(2, 5, 2, 6, 40),
    BlockStage(3, 3, 2, 6, 80),
    BlockStage(3, 5, 1, 6, 112),
    BlockStage(4, 5, 2, 6, 192),
    BlockStage(1, 3, 1, 6, 320),
)


class SameConvolution(nn.Conv2d):
    """A convolution with ⌈side/stride⌉ results along a side; odd padding goes below and to the right."""

    def forward(self, images: Tensor) -> Tensor:
        rows, columns = (self._padding(side) for side in map(int, images.shape[-2:]))
        padded = functional.pad(images, (columns // 2, -(-columns // 2), rows // 2, -(-rows // 2)))
        return functional.conv2d(padded, self.weight, self.bias, self.stride, groups=self.groups)

    def _padding(self, side: int) -> int:
        window, stride = self.kernel_size[0], self.stride[0]
        return max((-(-side // stride) - 1) * stride + window - side, 0)


class InvertedResidual(nn.Sequential):
    """Adds the result of its layers to their input."""

    def forward(self, maps: Tensor) -> Tensor:
        added = maps
        for layer in self:
            added = layer(added)
        return maps + added


class Enlarged(nn.Module):
    """Brings RGB images to the size and range of the layers."""

    def forward(self, images: Tensor) -> Tensor:
        """Return images (n, 3, 128, 128) for grey or RGB images in [0, 1]."""
        enlarged = functional.interpolate(images, (SIDE, SIDE), mode="bilinear", align_corners=False)
        return ((enlarged - CENTER) * SCALE).expand(-1, 3, -1, -1)


class UnitLength(nn.Module):
    """Divides vectors by their lengths."""

    def forward(self, vectors: Tensor) -> Tensor:
        return functional.normalize(vectors, dim=1)


class Lite0Network(EncoderNetwork):
    """Images enlarged to 128×128; the 1,280 pooled features, of length 1."""

    images_at_once: ClassVar[int] = 8

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Enlarged(), *build_layers(STAGES), UnitLength())
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


def build_layers(stages: Sequence[BlockStage]) -> nn.Sequential:
    """Build the layers from normalised images to 1,280 pooled features (n, 1280)."""
    layers, maps = _rectified(SameConvolution(3, _FIRST_MAPS, 3, stride=2)), _FIRST_MAPS
    for stage in stages:
        for block in range(stage.blocks):
            layers.append(_block(maps, stage, stage.stride if block == 0 else 1))
            maps = stage.maps
    last = _rectified(SameConvolution(maps, _LAST_MAPS, 1))
    return nn.Sequential(*layers, *last, nn.AdaptiveAvgPool2d(1), nn.Flatten())


Network = TypeVar("Network", bound=nn.Module)


@torch.no_grad()
def fold_weights(network: Network, weights: dict[str, Tensor]) -> Network:
    """Copy the weights of the package into a network; convolutions and batch norms are in the order of its layers."""
    convolutions = [name for name, value in weights.items() if name.endswith("weight") and value.dim() == 4]
    norms = [name.removesuffix("running_mean") for name in weights if name.endswith("running_mean")]
    layers = [layer for layer in network.modules() if isinstance(layer, SameConvolution)]
    for layer, convolution, norm in zip(layers, convolutions, norms, strict=True):
        gain = weights[norm + "weight"] / (weights[norm + "running_var"] + _FLOOR).sqrt()
        shift = weights[norm + "bias"] - gain * weights[norm + "running_mean"]
        layer.load_state_dict({"weight": weights[convolution] * gain[:, None, None, None], "bias": shift})
    return network


def _block(maps: int, stage: BlockStage, stride: int) -> nn.Sequential:
    """Widen, filter each map, narrow."""
    wide = maps * stage.widening
    layers: list[nn.Module] = [] if stage.widening == 1 else _rectified(SameConvolution(maps, wide, 1))
    layers += _rectified(SameConvolution(wide, wide, stage.window, stride=stride, groups=wide))
    layers.append(SameConvolution(wide, stage.maps, 1))
    return (InvertedResidual if stride == 1 and maps == stage.maps else nn.Sequential)(*layers)


def _rectified(convolution: SameConvolution) -> list[nn.Module]:
    return [convolution, nn.ReLU6()]
