"""The two classifiers that judge synthetic images: the standard CNN, small and published, and a residual network.

Both see images of more than 32 pixels a side `averaged` down to 32, so that their work does not grow with the images.

Standard CNN: convolution 3×3 (32) – pool 2 – dropout 0.2 – convolution 3×3 (64) – pool 2 – dropout 0.25 –
dense 64 – softmax. ReLU follows the pooling, which gives the same numbers as the reverse and costs less.

Residual: convolution 3×3 (16), then three stages of 16, 32 and 64 channels with one residual block each, the later
ones at half the resolution, group normalisation, mean over all places, softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]
"""Height, width, channels."""

LARGEST_SIDE = 32
_AVERAGED = f"sides above {LARGEST_SIDE} pixels averaged down to {LARGEST_SIDE}"
# Below this side two valid convolutions would eat the image up; a border of zeros keeps its size.
_SMALLEST_UNPADDED_SIDE = 16

_STAGES = (16, 32, 64)
_NORMALISATION_GROUPS = 8


class ClassifierArchitecture(NamedTuple):
    """An architecture.

    Attributes:
        suffix: Suffix of the names of metrics that it computes.
        build: Makes an untrained network for a shape and a number of classes.
    """

    title: str
    suffix: str
    description: str
    build: Callable[[Shape, int], torch.nn.Module]


def standard_network(shape: Shape, num_classes: int) -> torch.nn.Module:
    """Build the standard CNN for averaged images of `shape` (height, width, channels)."""
    from torch import nn

    height, width, channels = shape
    padding = 0 if min(height, width) >= _SMALLEST_UNPADDED_SIDE else 1
    features = 64 * _side_after(height, padding) * _side_after(width, padding)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=padding),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Conv2d(32, 64, 3, padding=padding),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(features, 64),
        nn.ReLU(),
        nn.Linear(64, num_classes),
    )


def residual_network(shape: Shape, num_classes: int) -> torch.nn.Module:
    """Build the stronger classifier for averaged images of `shape` (height, width, channels)."""
    from torch import nn

    blocks: list[nn.Module] = [nn.Conv2d(shape[2], _STAGES[0], 3, padding=1, bias=False)]
    before = _STAGES[0]
    for stage, width in enumerate(_STAGES):
        blocks.append(_residual_block(before, width, stride=1 if stage == 0 else 2))
        before = width
    return nn.Sequential(
        *blocks, nn.GroupNorm(_NORMALISATION_GROUPS, before), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(before, num_classes),
    )  # fmt: skip


def _residual_block(before: int, width: int, stride: int) -> torch.nn.Module:
    """Build two convolutions beside a shortcut, normalisation first (He et al. 2016)."""
    from torch import nn

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.path = nn.Sequential(
                nn.GroupNorm(_NORMALISATION_GROUPS, before),
                nn.ReLU(),
                nn.Conv2d(before, width, 3, stride, padding=1, bias=False),
                nn.GroupNorm(_NORMALISATION_GROUPS, width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
            )
            same = before == width and stride == 1
            self.shortcut = nn.Identity() if same else nn.Conv2d(before, width, 1, stride, bias=False)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            added: torch.Tensor = self.shortcut(images) + self.path(images)
            return added

    return Residual()


def averaged(images: torch.Tensor) -> torch.Tensor:
    """Average images (n, channels, height, width) down to the largest size that a classifier sees."""
    from torch.nn.functional import adaptive_avg_pool2d

    height, width = (min(side, LARGEST_SIDE) for side in images.shape[2:])
    return images if images.shape[2:] == (height, width) else adaptive_avg_pool2d(images, (height, width))


def _side_after(side: int, padding: int) -> int:
    """Return the side of the feature map after two convolutions, each with its pooling."""
    for _ in range(2):
        side = (side - 2 + 2 * padding) // 2
    return side


STANDARD = ClassifierArchitecture(
    "standard CNN",
    "",
    f"the standard CNN ({_AVERAGED}, convolution 3×3 with 32 channels, pool 2, dropout 0.2, convolution 3×3 with 64 "
    "channels, pool 2, dropout 0.25, dense 64, softmax; Adam 1e-3; last epoch)",
    standard_network,
)
RESIDUAL = ClassifierArchitecture(
    "residual network",
    "_resnet",
    f"a residual network ({_AVERAGED}, convolution 3×3 with 16 channels, three residual blocks of 16, 32 and 64 "
    "channels with group normalisation, mean over all places, softmax; Adam 1e-3; last epoch)",
    residual_network,
)

CLASSIFIERS = (STANDARD, RESIDUAL)
