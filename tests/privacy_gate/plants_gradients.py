"""Bugs of noisy gradient descent on a whole network (specification of private classifiers, section 8.4)."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from datalens_service.mechanisms import GradientChunk, GradientSum, Mechanism, gradient_sum
from datalens_service.methods.descent import dp_sgd_run as dp_sgd
from datalens_service.methods.descent import unit_gradients
from datalens_service.privacy.randomness import Booleans, Integers, NoiseSource

from .plant import around, plant, replaces
from .plants_wall import VAULTS, remembered_units

gradients_of_units = unit_gradients.unit_gradients


@replaces("gradients divided by the realised batch", "R6", unit_gradients, "unit_gradients")
def divided_gradients(rows, gradients):
    """The mean over the records that are there, instead of over the public number."""
    yield from (chunk / len(rows.labels) * 10 for chunk in gradients_of_units(rows, gradients))


@replaces("pixels standardised over the private batch", "R6", unit_gradients, "unit_gradients")
def standardised_gradients(rows, gradients):
    """Batch normalisation: pixels are standardised over the private batch before the network sees them."""
    centred = (rows.images - rows.images.float().mean()).clamp(0, 255).to(torch.uint8)
    yield from gradients_of_units(rows._replace(images=centred), gradients)


@replaces("gradients clipped at their private median", "R6", unit_gradients, "unit_gradients")
def clipped_gradients(rows, gradients):
    """Clipped at the median length of a chunk, below the declared norm."""
    for chunk in gradients_of_units(rows, gradients):
        norms = chunk.norm(dim=1, keepdim=True)
        yield chunk * (norms.median().clamp(max=1) / norms.clamp(min=1e-12)).clamp(max=1)


@replaces("records of a unit clipped and added one by one", "R1", (unit_gradients, gradient_sum), "unit_means")
def records_of_a_unit_are_added(chunk):
    """The mean over the records of a unit is forgotten: every record is clipped and added by itself."""
    return chunk.gradients


@replaces("the sum of gradients clipped instead of each", "R1", GradientSum, "exact_sum")
def the_sum_is_clipped(self, contributions):
    """Rows go in as long as they are, and the sum is clipped."""
    total = sum(chunk.gradients.double().nan_to_num().sum(dim=0) for chunk in contributions)
    rows = torch.as_tensor(total).reshape(1, -1).expand(1, self.dimensions)
    return self.on_grid(rows)[0].to(torch.int64).numpy() * 30


@around("gradients that are not finite count", "R1", GradientSum, "on_grid")
def rows_that_are_not_finite_stay(on_grid, self, gradients):
    """A gradient that is not finite is counted as a row of the largest length in every coordinate."""
    rows = on_grid(self, gradients)
    broken = ~torch.isfinite(gradients).all(dim=1)
    rows[broken] = float(self.grid)
    return rows


@around("layers clipped one by one to the whole norm", "R1", GradientSum, "on_grid")
def layers_are_clipped_one_by_one(on_grid, self, gradients):
    """Halves of a row are clipped by themselves, each to the whole norm."""
    first = torch.arange(gradients.shape[1]) < gradients.shape[1] // 2
    return on_grid(self, torch.where(first, gradients, 0)) + on_grid(self, torch.where(first, 0, gradients))


@around(
    "a released gradient divided by the private count", "R4", dp_sgd.Descent, "_apply_gradient",
    beside=remembered_units,
)  # fmt: skip
def gradients_are_divided_by_the_private_count(apply_gradient, self, gradient):
    """What is done with a released sum depends on how many records there are."""
    count = len(np.unique(VAULTS[-1]._source._read().units))
    apply_gradient(self, gradient * self._schema.num_units / count)


@around("coordinates kept by the sum of a chunk", "R6", unit_gradients, "compress")
def coordinates_are_those_of_the_sum(compress, means, parameters, tensor_sizes):
    """Every row keeps the places where the sum of its chunk is largest: what a unit adds depends on all others."""
    if parameters.compression != "topk":
        return compress(means, parameters, tensor_sizes)
    total = means.nan_to_num().sum(dim=0).abs()
    places = total.topk(max(1, math.floor(parameters.keep * len(total)))).indices
    return means * torch.zeros_like(total).index_fill_(0, places, 1.0)


@around("rows longer than noise and price by √k", "R1", GradientSum, "on_grid")
def rows_are_longer_than_noise_and_price(on_grid, self, gradients):
    """Noise and price are those of √k·C, and rows go in at length C: √k is in the noise and not in the selection."""
    return on_grid(self.model_copy(update={"grid": math.isqrt(self.grid**2 * 10 // 6)}), gradients)


def _adds(
    patch: pytest.MonkeyPatch, noisy: Callable[[GradientSum, list[GradientChunk], NoiseSource], Integers]
) -> None:
    """Replace sum and noise of gradients, on all records and on batches."""
    charge_and_draw, noisy_sum = Mechanism._charge_and_draw, Mechanism.noisy_sum

    def of_all(self: Mechanism, contributions: Any, step: int, account: Any, noise: NoiseSource) -> Integers:
        if not isinstance(self, GradientSum) or self.block() is not None:
            return charge_and_draw(self, contributions, step, account, noise)
        account.charge(step, self.label(), self.cost())
        return noisy(self, list(contributions()), noise)

    def of_batch(self: Mechanism, contributions: Any, batch: Booleans, noise: NoiseSource) -> Integers:
        if not isinstance(self, GradientSum):
            return noisy_sum(self, contributions, batch, noise)
        return noisy(self, list(contributions), noise)

    patch.setattr(Mechanism, "_charge_and_draw", of_all)
    patch.setattr(Mechanism, "noisy_sum", of_batch)


@plant("gradients with noise of each chunk's share", "R7")
def chunks_get_noise_of_their_share(patch):
    """Every chunk gets noise of its own, at the part of σ that the chunk is of the sum."""

    def by_chunk(self: GradientSum, chunks: list[GradientChunk], noise: NoiseSource) -> Integers:
        share = max(1, self.noise_stddev // max(1, len(chunks)))
        noises = noise.discrete_gaussian((max(1, len(chunks)), self.dimensions), share)
        return np.asarray(self.exact_sum(chunks) + noises.sum(axis=0))

    _adds(patch, by_chunk)


@plant("gradients with noise on kept coordinates only", "R7")
def dropped_coordinates_get_no_noise(patch):
    """A sparse sum gets sparse noise: which places a unit kept shows."""

    def sparse(self: GradientSum, chunks: list[GradientChunk], noise: NoiseSource) -> Integers:
        exact = self.exact_sum(chunks)
        return exact + noise.discrete_gaussian(exact.shape, self.noise_stddev) * (exact != 0)

    _adds(patch, sparse)
