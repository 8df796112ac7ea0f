"""Bugs of noisy gradient descent on a whole network (specification of private classifiers, section 8.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from datalens_service.mechanisms import GradientChunk, GradientSum, gradient_sum
from datalens_service.methods import dp_sgd_run as dp_sgd
from datalens_service.models import per_record
from datalens_service.privacy.randomness import Booleans, Integers

from .plant import Plant


def gradients_are_divided_by_the_realised_batch(patch: pytest.MonkeyPatch) -> None:
    """The mean over the records that are there, instead of over the public number."""
    gradients = dp_sgd.DpSgdRun._gradients

    def divided(self: dp_sgd.DpSgdRun, *coins: Booleans) -> Iterator[GradientChunk]:
        count = len(self._dataset.train.labels)
        return (GradientChunk(chunk.gradients / count * 10, chunk.units) for chunk in gradients(self, *coins))

    patch.setattr(dp_sgd.DpSgdRun, "_gradients", divided)


def records_are_normalised_together(patch: pytest.MonkeyPatch) -> None:
    """Batch normalisation: pixels are standardised over the private batch before the network sees them."""
    forward = per_record.BytesToNumbers.forward
    start = dp_sgd.DpSgdRun._gradients

    def standardised(self: dp_sgd.DpSgdRun, *coins: Booleans) -> Iterator[GradientChunk]:
        mean = float(self._dataset.train.images.mean()) / 255
        patch.setattr(per_record.BytesToNumbers, "forward", lambda module, images: forward(module, images) - mean)
        return start(self, *coins)

    patch.setattr(dp_sgd.DpSgdRun, "_gradients", standardised)


def the_clip_norm_is_the_private_median(patch: pytest.MonkeyPatch) -> None:
    """Rows are clipped at the median length of the batch, below the declared norm."""
    start = dp_sgd.DpSgdRun._gradients

    def clipped(self: dp_sgd.DpSgdRun, *coins: Booleans) -> Iterator[GradientChunk]:
        for chunk in start(self, *coins):
            norms = chunk.gradients.norm(dim=1, keepdim=True)
            bound = norms.median().clamp(max=self._parameters.clip_norm)
            yield GradientChunk(chunk.gradients * (bound / norms.clamp(min=1e-12)).clamp(max=1), chunk.units)

    patch.setattr(dp_sgd.DpSgdRun, "_gradients", clipped)


def records_of_a_unit_are_added(patch: pytest.MonkeyPatch) -> None:
    """The mean over the records of a unit is forgotten: every record is clipped and added by itself."""
    patch.setattr(gradient_sum, "unit_means", lambda chunk: chunk.gradients)


def the_sum_is_clipped(patch: pytest.MonkeyPatch) -> None:
    """Rows go in as long as they are, and the sum is clipped."""

    def exact_sum(self: GradientSum, contributions: Iterable[GradientChunk]) -> Integers:
        total = sum(chunk.gradients.double().nan_to_num().sum(dim=0) for chunk in contributions)
        rows = torch.as_tensor(total).reshape(1, -1).expand(1, self.dimensions)
        return self.on_grid(rows)[0].to(torch.int64).numpy() * 30

    patch.setattr(GradientSum, "exact_sum", exact_sum)


def rows_that_are_not_finite_stay(patch: pytest.MonkeyPatch) -> None:
    """A gradient that is not finite is counted as a row of the largest length in every coordinate."""
    on_grid = GradientSum.on_grid

    def kept(self: GradientSum, gradients: torch.Tensor) -> torch.Tensor:
        rows = on_grid(self, gradients)
        broken = ~torch.isfinite(gradients).all(dim=1)
        rows[broken] = float(self.grid)
        return rows

    patch.setattr(GradientSum, "on_grid", kept)


def layers_are_clipped_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Halves of a row are clipped by themselves, each to the whole norm."""
    on_grid = GradientSum.on_grid

    def by_layer(self: GradientSum, gradients: torch.Tensor) -> torch.Tensor:
        first = torch.arange(gradients.shape[1]) < gradients.shape[1] // 2
        return on_grid(self, torch.where(first, gradients, 0)) + on_grid(self, torch.where(first, 0, gradients))

    patch.setattr(GradientSum, "on_grid", by_layer)


def gradients_are_divided_by_the_private_count(patch: pytest.MonkeyPatch) -> None:
    """What is done with a released sum depends on how many records there are."""
    apply_gradient = dp_sgd.DpSgdRun._apply_gradient

    def applied(self: dp_sgd.DpSgdRun, gradient: Any) -> None:
        apply_gradient(self, gradient * self._dataset.schema.num_units / len(np.unique(self._dataset.train.unit_ids)))

    patch.setattr(dp_sgd.DpSgdRun, "_apply_gradient", applied)


PLANTS = (
    Plant("gradients divided by the realised batch", "R6", gradients_are_divided_by_the_realised_batch),
    Plant("pixels standardised over the private batch", "R6", records_are_normalised_together),
    Plant("gradients clipped at their private median", "R6", the_clip_norm_is_the_private_median),
    Plant("records of a unit clipped and added one by one", "R1", records_of_a_unit_are_added),
    Plant("the sum of gradients clipped instead of each", "R1", the_sum_is_clipped),
    Plant("gradients that are not finite count", "R1", rows_that_are_not_finite_stay),
    Plant("layers clipped one by one to the whole norm", "R1", layers_are_clipped_one_by_one),
    Plant("a released gradient divided by the private count", "R4", gradients_are_divided_by_the_private_count),
)
