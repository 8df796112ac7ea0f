"""The two classifiers that judge synthetic images: a small CNN, and a linear model on features of a public network.

The CNN has three convolutions 3×3, each of which halves the sides, and a residual one at the second and third size.
Group normalisation follows each, so that batches of any size do. It sees images of more than 32 pixels a side
`averaged` down to 32: its work does not grow with the images.

The linear model knows the world already: it says what images teach somebody who has a network at hand. It needs the
extra for ImageNet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import torch

LARGEST_SIDE: Final = 32
WIDTHS: Final = (32, 64, 128)
_GROUPS: Final = 8


class JudgeClassifier(NamedTuple):
    """One of the two, as reports name it.

    Attributes:
        suffix: The end of the names of metrics that it computes.
    """

    title: str
    suffix: str
    description: str


def judge_network(channels: int, num_classes: int) -> torch.nn.Module:
    """Untrained CNN for averaged images of any size from 4; its last layer reads 128 features."""
    from torch import nn

    before, layers = channels, list[nn.Module]()
    for width in WIDTHS:
        # The last place of a side that is odd is kept: of 4 pixels there is one left after three halvings.
        layers += [
            nn.Conv2d(before, width, 3, padding=1, bias=False),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.GroupNorm(_GROUPS, width),
            nn.ReLU(),
        ]
        if before != channels:
            layers.append(_residual_block(width))
        before = width
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(before, num_classes))


def _residual_block(width: int) -> torch.nn.Module:
    """A convolution beside a shortcut (He et al. 2016)."""
    from torch import nn

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.path = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False), nn.GroupNorm(_GROUPS, width), nn.ReLU()
            )

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            added: torch.Tensor = images + self.path(images)
            return added

    return Residual()


def averaged(images: torch.Tensor) -> torch.Tensor:
    """Average images (n, channels, height, width) of any size down to what the CNN sees."""
    from torch.nn.functional import adaptive_avg_pool2d

    height, width = (min(side, LARGEST_SIDE) for side in images.shape[2:])
    return images if images.shape[2:] == (height, width) else adaptive_avg_pool2d(images, (height, width))


STANDARD: Final = JudgeClassifier(
    "standard CNN",
    "",
    "the standard CNN, judge 2 (sides above 32 pixels averaged down to 32; convolutions 3×3 with 32, 64 and 128 "
    "channels, each with pool 2 and group normalisation, the last two with a residual convolution; greatest value of "
    "each channel, softmax; random shifts, classes equally often, AdamW 3e-3 with a cosine; last step)",
)
LINEAR: Final = JudgeClassifier(
    "linear model on imagenet-lite0",
    "_features",
    "a linear model on features of imagenet-lite0 (least squares with classes weighted alike, of at most 5,000 images)",
)
CLASSIFIERS: Final = (STANDARD, LINEAR)
