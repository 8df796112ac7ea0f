"""Noise that a denoiser takes away from records again: what a record gets depends on that record and the seed alone.

A record that leaves the data set must not change the noise of others, so noise is chosen by the content of the image,
not by its position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from datalens_service.models.generators.denoiser.denoiser_fit import LOG_STDDEV_DEVIATION, LOG_STDDEV_MEAN

_NUMBERS: Final = 2**22
_LARGEST_LOG_SIZE: Final = 12
_WORD_BITS: Final = 64
_SEED_OF_HASH: Final = 20_221_206


def hash_images(images: Tensor) -> Tensor:
    """int64 (n,): each a function of its own image (n, …) of bytes, spread over 64 bits."""
    rows = images.flatten(1)
    rng = np.random.default_rng(_SEED_OF_HASH)
    factors = torch.from_numpy(rng.integers(-(2**63), 2**63, rows.shape[1], dtype=np.int64)).to(rows.device)
    # Integer products wrap around, on every device alike.
    return (rows.to(torch.int64) * factors).sum(dim=1)


@dataclass(frozen=True)
class NoiseBank:
    """Noise of one step.

    Attributes:
        fields: float32 (size, d) standard normal; the size is a power of two.
        log_stddevs: (size,) standard normal quantiles of noise levels.
        multiplier: Odd; spreads hashes over the fields, in another way at every step.
    """

    fields: Tensor
    log_stddevs: Tensor
    multiplier: int

    @classmethod
    def draw(cls, dimensions: int, rng: np.random.Generator, device: torch.device) -> NoiseBank:
        """Noise for images of so many numbers; about 16 MiB of it."""
        bits = min(_LARGEST_LOG_SIZE, max(1, (_NUMBERS // dimensions).bit_length() - 1))
        fields = rng.standard_normal((2**bits, dimensions), dtype=np.float32)
        levels = rng.standard_normal(2**bits, dtype=np.float32)
        multiplier = int(rng.integers(-(2**62), 2**62)) * 2 + 1
        return cls(torch.from_numpy(fields).to(device), torch.from_numpy(levels).to(device), multiplier)

    def choose(self, hashes: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        """Standard deviations (n, draws) and standard normal noise (n, draws, d) of records with these hashes (n,).

        Args:
            hashes: As `hash_images` gave them.
            draws: Noisy copies of a record.
        """
        size = len(self.fields)
        bits = size.bit_length() - 1
        first = (hashes * self.multiplier) >> (_WORD_BITS - bits)
        rows = (first[:, None] + torch.arange(draws, device=hashes.device)) % size
        stddevs = torch.exp(LOG_STDDEV_MEAN + LOG_STDDEV_DEVIATION * self.log_stddevs[rows])
        return stddevs, self.fields[rows]
