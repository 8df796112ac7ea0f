"""What units add to the gradients of a denoiser: contributions, at weights that were released."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms.unit_records import UnitRows
from datalens_service.methods.descent.record_noise import NoiseBank, hash_images
from datalens_service.methods.descent.unit_gradients import means_of_units
from datalens_service.models.generators.denoiser.denoiser import Denoiser, loss_weight
from datalens_service.models.per_record import PerRecordGradients

_RECORDS_PER_GROUP: Final = 1024
"""Whose noisy copies are made together."""


class NoisyCopies(NamedTuple):
    """How records are shown to a denoiser, and how it learns from them."""

    gradients: PerRecordGradients
    """Of a `PackedDenoiser`."""
    schema: Schema
    draws: int
    """Noisy copies of a record."""
    seed: int
    """Public, of the noise of a step."""

    @classmethod
    def from_denoiser(cls, denoiser: Denoiser, draws: int) -> Self:
        """At the weights of a denoiser when gradients are taken."""
        gradients = PerRecordGradients(PackedDenoiser(denoiser, draws), denoising_error)
        schema = denoiser.shape.schema
        widths = (draws * (schema.dimensions + 1) + schema.num_classes, schema.dimensions)
        device = next(denoiser.parameters()).device
        gradients.settle([torch.zeros(1, width, device=device) for width in widths])
        return cls(gradients, schema, draws, seed=0)

    def pack(self, images: Tensor, labels: Tensor, bank: NoiseBank) -> list[Tensor]:
        """Packed noisy copies of records, and the records without noise."""
        stddevs, noise = bank.choose(hash_images(images), self.draws)
        clean = images.flatten(1).to(torch.float32) / 127.5 - 1
        copies = clean[:, None] + stddevs[:, :, None] * noise
        one_hot = functional.one_hot(labels, self.schema.num_classes).to(torch.float32)
        return [torch.cat([copies.flatten(1), stddevs, one_hot], dim=1), clean]


def denoiser_gradients(rows: UnitRows, copies: NoisyCopies) -> Iterator[Tensor]:
    """Contribution: the mean gradient of every unit."""
    yield from means_of_units(_record_gradients(rows, copies), rows.units)


def _record_gradients(rows: UnitRows, copies: NoisyCopies) -> Iterator[Tensor]:
    """(records, weights), chunk by chunk."""
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
        """(draws, d) images without noise, and weights (draws,) of their errors, of one row (1, …)."""
        schema, draws = self.denoiser.shape.schema, self._draws
        sizes = [draws * schema.dimensions, draws, schema.num_classes]
        copies, stddevs, one_hot = torch.split(packed, sizes, dim=1)
        images = copies.view(draws, schema.channels, schema.height, schema.width)
        denoised = self.denoiser(images, stddevs[0], one_hot.expand(draws, -1))
        return denoised.flatten(1), loss_weight(stddevs[0])


def denoising_error(denoised: tuple[Tensor, Tensor], _packed: Tensor, clean: Tensor) -> Tensor:
    """Weighted squared error of one record, averaged over its noisy copies."""
    images, weights = denoised
    return (weights * (images - clean).square().mean(dim=1)).mean()
