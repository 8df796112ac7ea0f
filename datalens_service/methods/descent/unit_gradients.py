"""What units add to the gradients of a descent: contributions, at weights that were released."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientChunk
from datalens_service.mechanisms.gradient_chunks import unit_means
from datalens_service.mechanisms.unit_records import UnitContribution, UnitRows
from datalens_service.methods.descent.dp_sgd_parameters import DpSgdParameters
from datalens_service.models.compression import keep_energy, keep_largest
from datalens_service.models.per_record import BytesToNumbers, Loss, PerRecordGradients


def class_loss(logits: Tensor, _image: Tensor, label: Tensor) -> Tensor:
    """Of one record."""
    return functional.cross_entropy(logits, label)


def image_gradients(
    network: nn.Module, schema: Schema, loss: Loss = class_loss, records_at_once: int | None = None
) -> PerRecordGradients:
    """Of the loss of images of bytes, by all weights of a network.

    Args:
        network: Takes images in [0, 1]; its weights are read when gradients are taken.
        loss: A function of a module.
        records_at_once: As `PerRecordGradients`.
    """
    gradients = PerRecordGradients(nn.Sequential(BytesToNumbers(), network), loss, records_at_once)
    device = next(network.parameters()).device
    image = torch.zeros(1, schema.channels, schema.height, schema.width, dtype=torch.uint8, device=device)
    gradients.settle([image, torch.zeros(1, dtype=torch.int64, device=device)])
    return gradients


def unit_gradients(rows: UnitRows, gradients: PerRecordGradients) -> Iterator[Tensor]:
    """Contribution: the mean gradient of every unit."""
    yield from means_of_units(gradients.chunks([rows.images, rows.labels]), rows.units)


class Compression(NamedTuple):
    """What compressed contributions are made with."""

    gradients: PerRecordGradients
    parameters: DpSgdParameters


def compressed_gradients(rows: UnitRows, compression: Compression) -> Iterator[Tensor]:
    """Contribution: the mean gradient of every unit, of which the largest coordinates stay."""
    for means in unit_gradients(rows, compression.gradients):
        yield compress(means, compression.parameters)


def choose_question(gradients: PerRecordGradients, parameters: DpSgdParameters) -> tuple[UnitContribution, object]:
    """What a step sums, and what it is made with."""
    if parameters.compression == "none":
        return unit_gradients, gradients
    return compressed_gradients, Compression(gradients, parameters)


def compress(means: Tensor, parameters: DpSgdParameters) -> Tensor:
    """Rows (units, weights) of which the largest coordinates stay."""
    if parameters.compression == "topk":
        return keep_largest(means, max(1, math.floor(parameters.keep * means.shape[1])))
    norms = means.norm(dim=1, keepdim=True)
    return keep_energy(means * (parameters.clip_norm / norms.clamp(min=parameters.clip_norm)), parameters.keep)


def means_of_units(rows: Iterable[Tensor], units: Tensor) -> Iterator[Tensor]:
    """float32 (units, dimensions) means over the records of each unit, chunk by chunk."""
    for chunk in whole_units(rows, units):
        # One precision for all: else the size of one unit would decide how rows of others are rounded.
        yield unit_means(chunk).to(torch.float32)


def whole_units(rows: Iterable[Tensor], units: Tensor) -> Iterator[GradientChunk]:
    """Chunks that split no unit.

    Args:
        rows: (records, dimensions) gradients, one chunk after another.
        units: (all records,) ascending identities of their units.
    """
    start, held = 0, None
    for chunk in rows:
        joined = chunk if held is None else torch.cat([held, chunk])
        end = start + len(joined)
        identities = units[start:end]
        # The next chunk may go on with the last unit.
        goes_on = end < len(units) and bool(units[end] == identities[-1])
        complete = int((identities != identities[-1]).sum()) if goes_on else len(joined)
        yield GradientChunk(joined[:complete], identities[:complete])
        start, held = start + complete, joined[complete:] if goes_on else None
