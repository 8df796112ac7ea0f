"""Scattering features: fixed wavelets, moduli and averages, the same for everybody.

Bruna and Mallat 2013, "Invariant scattering convolution networks", with two scales and eight angles. Tramèr and Boneh
2021, "Differentially private learning needs better features", train a linear layer on them with noisy gradients. No
filter is learnt, so features of a record are a function of that record alone.

Coefficients of the coarser wavelets are computed at every second pixel, as in the fast algorithm of the first paper:
their moduli are smooth.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

_SCALES: Final = 2
_ANGLES: Final = 8
_FREQUENCY: Final = 3 * math.pi / 4
_WIDTH: Final = 0.8
_ASPECT: Final = 0.5
POOLING: Final = 2**_SCALES
"""Pixels between two places of the result."""
_MOST_PIXELS_AT_ONCE, _MOST_PLANES_AT_ONCE = 2**15, 2**8
"""Most pixels and planes whose maps fit into the cache of a core, where several passes go over them."""
MAPS: Final = 1 + _SCALES * _ANGLES + _ANGLES**2
"""Maps of one channel: the average, the first order, and pairs of wavelets of growing scale."""


class ScatteringTransform(nn.Module):
    """Averages of |x ⋆ ψ| and ||x ⋆ ψ| ⋆ ψ'|, on a grid four times as coarse as the image.

    Images are (n, channels, height, width) in [0, 1]; the result is (n, channels · 81, ⌈height/4⌉, ⌈width/4⌉).
    """

    def __init__(self) -> None:
        super().__init__()
        for scale in range(_SCALES):
            self.register_buffer(f"wavelets{scale}", _wavelets(scale), persistent=False)
            self.register_buffer(f"average{scale}", _gaussian(_SCALES - 1 - scale), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return all orders, one after another along the channels."""
        count, channels, height, width = images.shape
        planes = images.reshape(count * channels, 1, height, width)
        smooth = torch.cat([self._scatter(part) for part in torch.split(planes, planes_at_once(height, width))])
        return smooth.reshape(count, channels * MAPS, *smooth.shape[-2:])

    def _scatter(self, planes: Tensor) -> Tensor:
        """Return coefficients (n, 81, rows, columns) of planes (n, 1, height, width)."""
        first, coarse = (self._modulus(planes, scale) for scale in range(_SCALES))
        second = self._modulus(first.flatten(0, 1).unsqueeze(1), 1)
        pairs = second.reshape(len(planes), -1, *second.shape[-2:])
        maps = torch.cat([planes, first], dim=1), torch.cat([coarse, pairs], dim=1)
        return torch.cat([self._smoothed(part, scale) for scale, part in enumerate(maps)], dim=1)

    def _modulus(self, planes: Tensor, scale: int) -> Tensor:
        """Return lengths (n, angles, rows, columns) of complex wavelet coefficients, at every 2^scale-th pixel."""
        wavelets = self.get_buffer(f"wavelets{scale}")
        parts = functional.conv2d(_extended(planes, wavelets), wavelets, stride=2**scale)
        real, imaginary = parts.chunk(2, dim=1)
        return (real.square() + imaginary.square() + torch.finfo(torch.float32).tiny).sqrt()

    def _smoothed(self, maps: Tensor, scale: int) -> Tensor:
        """Return averages (n, maps, rows, columns) at every fourth pixel, of maps at every 2^scale-th."""
        low_pass = self.get_buffer(f"average{scale}")
        planes = maps.flatten(0, 1).unsqueeze(1)
        smooth = functional.conv2d(_extended(planes, low_pass), low_pass, stride=POOLING // 2**scale)
        return smooth.reshape(*maps.shape[:2], *smooth.shape[-2:])


def planes_at_once(height: int, width: int) -> int:
    """Return a power of two, so that a batch of 256 images has equal parts, whose size decides kernels and rounding."""
    fitting = min(_MOST_PLANES_AT_ONCE, _MOST_PIXELS_AT_ONCE // (height * width))
    return 1 << max(0, fitting.bit_length() - 1)


def margins(side: int, shape: tuple[int, int]) -> tuple[int, str]:
    """Return how far, and in which way, planes are continued beyond their edges for filters with `side` taps."""
    margin = side // 2
    return margin, "reflect" if margin < min(shape) else "replicate"


def _extended(planes: Tensor, filters: Tensor) -> Tensor:
    margin, mode = margins(filters.shape[-1], (planes.shape[-2], planes.shape[-1]))
    return functional.pad(planes, (margin,) * 4, mode=mode)


def _grid(radius: int) -> tuple[Tensor, Tensor]:
    line = torch.arange(-radius, radius + 1, dtype=torch.float64)
    rows, columns = torch.meshgrid(line, line, indexing="ij")
    return rows, columns


def _wavelets(scale: int) -> Tensor:
    """Return real, then imaginary parts of Morlet wavelets with mean 0, (2 · angles, 1, side, side)."""
    width = _WIDTH * 2**scale
    rows, columns = _grid(math.ceil(3.5 * width / _ASPECT**0.5))
    bank = []
    for number in range(_ANGLES):
        angle = math.pi * number / _ANGLES
        along = columns * math.cos(angle) + rows * math.sin(angle)
        across = rows * math.cos(angle) - columns * math.sin(angle)
        envelope = torch.exp(-(along**2 + (_ASPECT * across) ** 2) / (2 * width**2))
        wave = torch.exp(1j * (_FREQUENCY / 2**scale) * along)
        morlet = envelope * (wave - (envelope * wave).sum() / envelope.sum())
        bank.append(morlet * (_ASPECT / (2 * math.pi * width**2)))
    together = torch.stack(bank)
    return torch.cat([together.real, together.imag]).unsqueeze(1).to(torch.float32)


def _gaussian(scale: int) -> Tensor:
    """Return an average as wide as a wavelet of that scale, with sum 1, (1, 1, side, side)."""
    width = _WIDTH * 2**scale
    rows, columns = _grid(math.ceil(3.5 * width))
    bell = torch.exp(-(rows**2 + columns**2) / (2 * width**2))
    return (bell / bell.sum())[None, None].to(torch.float32)
