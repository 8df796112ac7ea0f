"""Contributions of units to the gradients of a denoiser, at weights that were released.

The noise that a record gets depends on that record and the seed alone: one that leaves the data set must not change the
noise of others, so noise is chosen by the content of the image, not by its position.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms.unit_records import UnitRows
from datalens_service.methods.descent.unit_gradients import means_of_units
from datalens_service.models.generators.denoiser.denoiser import (
    LOG_STDDEV_DEVIATION,
    LOG_STDDEV_MEAN,
    Denoiser,
    loss_weight,
)
from datalens_service.models.per_record import PerRecordGradients

_NUMBERS: Final = 2**22
_LARGEST_LOG_SIZE: Final = 12
_WORD_BITS: Final = 64
_SEED_OF_HASH: Final = 20_221_206


def hash_images(images: Tensor) -> Tensor:
    """Hash images of bytes (n, …) to int64 (n,), each from its own image, spread over 64 bits."""
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
        multiplier: Odd number that spreads hashes over the fields, in another way at every step.
    """

    fields: Tensor
    log_stddevs: Tensor
    multiplier: int

    @classmethod
    def draw(cls, dimensions: int, rng: np.random.Generator, device: torch.device) -> Self:
        """Draw noise for images of so many numbers; about 16 MiB of it."""
        bits = min(_LARGEST_LOG_SIZE, max(1, (_NUMBERS // dimensions).bit_length() - 1))
        fields = rng.standard_normal((2**bits, dimensions), dtype=np.float32)
        levels = rng.standard_normal(2**bits, dtype=np.float32)
        multiplier = int(rng.integers(-(2**62), 2**62)) * 2 + 1
        return cls(torch.from_numpy(fields).to(device), torch.from_numpy(levels).to(device), multiplier)

    def choose(self, hashes: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        """Choose standard deviations (n, draws) and standard normal noise (n, draws, d) for records.

        Args:
            hashes: (n,) from `hash_images`.
            draws: Noisy copies of a record.
        """
        size = len(self.fields)
        bits = size.bit_length() - 1
        first = (hashes * self.multiplier) >> (_WORD_BITS - bits)
        rows = (first[:, None] + torch.arange(draws, device=hashes.device)) % size
        stddevs = torch.exp(LOG_STDDEV_MEAN + LOG_STDDEV_DEVIATION * self.log_stddevs[rows])
        return stddevs, self.fields[rows]


_RECORDS_PER_GROUP: Final = 1024
"""Number of records whose noisy copies are made together."""


class NoisyCopies(NamedTuple):
    """The way records are shown to a denoiser, and how it learns from them."""

    gradients: PerRecordGradients
    """Gradients of a `PackedDenoiser`."""
    schema: Schema
    draws: int
    """Number of noisy copies of a record."""
    seed: int
    """Public seed of the noise of a step."""

    @classmethod
    def from_denoiser(cls, denoiser: Denoiser, draws: int) -> Self:
        """Use the weights that the denoiser has when gradients are taken."""
        gradients = PerRecordGradients(PackedDenoiser(denoiser, draws), denoising_error)
        schema = denoiser.shape.schema
        widths = (draws * (schema.dimensions + 1) + schema.num_classes, schema.dimensions)
        device = next(denoiser.parameters()).device
        gradients.settle([torch.zeros(1, width, device=device) for width in widths])
        return cls(gradients, schema, draws, seed=0)

    def pack(self, images: Tensor, labels: Tensor, bank: NoiseBank) -> list[Tensor]:
        """Pack noisy copies of records, and return them with the records without noise."""
        stddevs, noise = bank.choose(hash_images(images), self.draws)
        clean = images.flatten(1).to(torch.float32) / 127.5 - 1
        copies = clean[:, None] + stddevs[:, :, None] * noise
        one_hot = functional.one_hot(labels, self.schema.num_classes).to(torch.float32)
        return [torch.cat([copies.flatten(1), stddevs, one_hot], dim=1), clean]


def denoiser_gradients(rows: UnitRows, copies: NoisyCopies) -> Iterator[Tensor]:
    """Contribution: the mean gradient of every unit."""
    yield from means_of_units(_record_gradients(rows, copies), rows.units)


def _record_gradients(rows: UnitRows, copies: NoisyCopies) -> Iterator[Tensor]:
    """Yield gradients (records, weights), chunk by chunk."""
    bank = NoiseBank.draw(copies.schema.dimensions, np.random.default_rng(copies.seed), rows.units.device)
    groups = (torch.split(values, _RECORDS_PER_GROUP) for values in (rows.images, rows.labels))
    for images, labels in zip(*groups, strict=True):
        yield from copies.gradients.chunks(copies.pack(images, labels, bank))


class PackedDenoiser(nn.Module):
    """A denoiser that takes noisy copies of one record, their noise levels and the class in one row."""

    def __init__(self, denoiser: Denoiser, draws: int) -> None:
        super().__init__()
        self.denoiser, self._draws = denoiser, draws

    def forward(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """Denoise one row (1, …): return images (draws, d) and the weights of their errors (draws,)."""
        schema, draws = self.denoiser.shape.schema, self._draws
        sizes = [draws * schema.dimensions, draws, schema.num_classes]
        copies, stddevs, one_hot = torch.split(packed, sizes, dim=1)
        images = copies.view(draws, schema.channels, schema.height, schema.width)
        denoised = self.denoiser(images, stddevs[0], one_hot.expand(draws, -1))
        return denoised.flatten(1), loss_weight(stddevs[0])


def denoising_error(denoised: tuple[Tensor, Tensor], _packed: Tensor, clean: Tensor) -> Tensor:
    """Average the weighted squared error of one record over its noisy copies."""
    images, weights = denoised
    return (weights * (images - clean).square().mean(dim=1)).mean()
