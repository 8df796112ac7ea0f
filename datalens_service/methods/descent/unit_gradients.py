"""Contributions of units to the gradients of a descent, at weights that were released.

Sparse gradients turn one row into one row, and look at nothing else. The coordinates that stay depend on the private
row: that is sound because noise goes on all coordinates, and the mechanism's guard checks the length of a row.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientChunk
from datalens_service.mechanisms.gradient_sum import unit_means
from datalens_service.mechanisms.unit_records import UnitContribution, UnitRows
from datalens_service.methods.descent.dp_sgd_parameters import DpSgdParameters
from datalens_service.models.per_record import BytesToNumbers, Loss, PerRecordGradients

# float32 read as an integer grows with its value; without 19 low bits there are 16 buckets for each power of two. All
# squares below 2⁻³² of the largest share the lowest one.
_DROPPED_BITS = 19
_LOWEST = (127 - 32) << 4
_BUCKETS = (32 << 4) + 1
# Few enough that they stay in the processor's cache.
_ROWS_AT_ONCE: Final = 32


def keep_largest(rows: Tensor, count: int) -> Tensor:
    """Keep the `count` coordinates of each row (n, d) with the largest squares; the others become 0."""
    places = rows.abs().topk(count, dim=1).indices
    return torch.zeros_like(rows).scatter_(1, places, rows.gather(1, places))


def keep_energy(rows: Tensor, share: float) -> Tensor:
    """Keep the largest coordinates of each row (n, d) whose squares add up to at most `share` of all its squares.

    Coordinates with nearly the same square stay or go together, so a little less than `share` may remain, and nothing
    at all where one coordinate holds more. Squares are compared with the squared norm (NormTopK).

    Args:
        rows: float32, private.
        share: In (0, 1].
    """
    kept = torch.empty(rows.shape, dtype=torch.float32, device=rows.device)
    for part, result in zip(torch.split(rows, _ROWS_AT_ONCE), torch.split(kept, _ROWS_AT_ONCE), strict=True):
        finite = torch.where(torch.isfinite(part).all(dim=1, keepdim=True), part, 0.0).to(torch.float32)
        result.copy_(torch.where(_among_largest(finite, share), finite, 0.0))
    return kept


def _among_largest(rows: Tensor, share: float) -> Tensor:
    """Mark the coordinates of finite rows that stay."""
    largest = rows.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    squares = (rows / largest).square()
    buckets = ((squares.view(torch.int32) >> _DROPPED_BITS) - _LOWEST).clamp_min_(0)
    energies = torch.zeros(len(rows), _BUCKETS, dtype=torch.float64, device=rows.device)
    energies.scatter_add_(1, buckets.to(torch.int64), squares.to(torch.float64))
    from_the_top = energies.flip(1).cumsum(dim=1).flip(1)
    too_much = from_the_top > share * from_the_top[:, :1]
    return buckets >= too_much.sum(dim=1, keepdim=True)


def class_loss(logits: Tensor, _image: Tensor, label: Tensor) -> Tensor:
    """Compute the cross-entropy of one record."""
    return functional.cross_entropy(logits, label)


def image_gradients(
    network: nn.Module, schema: Schema, loss: Loss = class_loss, records_at_once: int | None = None
) -> PerRecordGradients:
    """Return gradients of the loss of images of bytes by all weights of a network.

    Args:
        network: Takes images in [0, 1]; its weights are read when gradients are taken.
        loss: A function of a module.
        records_at_once: Passed on to `PerRecordGradients`.
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
    """Gradients, and the parameters of their compression."""

    gradients: PerRecordGradients
    parameters: DpSgdParameters


def compressed_gradients(rows: UnitRows, compression: Compression) -> Iterator[Tensor]:
    """Contribution: the mean gradient of every unit, of which the largest coordinates stay."""
    for means in unit_gradients(rows, compression.gradients):
        yield compress(means, compression.parameters, compression.gradients.tensor_sizes)


def choose_question(gradients: PerRecordGradients, parameters: DpSgdParameters) -> tuple[UnitContribution, object]:
    """Choose the contribution of a step, and its released argument."""
    if parameters.compression == "none":
        return unit_gradients, gradients
    return compressed_gradients, Compression(gradients, parameters)


def compress(means: Tensor, parameters: DpSgdParameters, tensor_sizes: list[int]) -> Tensor:
    """Keep the largest coordinates of rows (units, weights).

    NormTopK chooses within each tensor of weights: what stays of all of them together is `keep` of the squared norm at
    most, as if it chose among all weights.

    Args:
        tensor_sizes: Columns of each tensor of weights, in their order.
    """
    if parameters.compression == "topk":
        return keep_largest(means, max(1, math.floor(parameters.keep * means.shape[1])))
    clipped = means * (parameters.clip_norm / means.norm(dim=1, keepdim=True).clamp(min=parameters.clip_norm))
    return torch.cat([keep_energy(tensor, parameters.keep) for tensor in clipped.split(tensor_sizes, dim=1)], dim=1)


def means_of_units(rows: Iterable[Tensor], units: Tensor) -> Iterator[Tensor]:
    """Yield means (units, dimensions) over the records of each unit, float32, chunk by chunk."""
    for chunk in whole_units(rows, units):
        # One precision for all: else the size of one unit would decide how rows of others are rounded.
        yield unit_means(chunk).to(torch.float32)


def whole_units(rows: Iterable[Tensor], units: Tensor) -> Iterator[GradientChunk]:
    """Regroup rows into chunks that split no unit.

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
