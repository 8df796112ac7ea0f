"""Bugs in the price of sampled runs (specification of private classifiers, section 8.4)."""

import math
from typing import Any

import pytest

from datalens_service.methods.descent.sampled_gradients import SampledRun
from datalens_service.privacy import accounting, poisson_sampling
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.poisson_sampling import PoissonSampling

from .plant import Plant

_TRAIN_AND_TEST = 7 / 6


def units_of_the_test_split_are_counted(patch: pytest.MonkeyPatch) -> None:
    """The price takes q from all images of an upload, the coins from those that are trained on."""
    priced = PoissonSampling.priced.__func__

    def counted(
        cls: type[PoissonSampling], multiplier: float, *, num_units: int, numerator: int, draws: int, slack: int
    ) -> Any:
        fewer = round(numerator / _TRAIN_AND_TEST)
        block = priced(cls, multiplier, num_units=num_units, numerator=fewer, draws=draws, slack=slack)
        return block.model_copy(update={"numerator": numerator})

    patch.setattr(PoissonSampling, "priced", classmethod(counted))


def passes_are_taken_for_steps(patch: pytest.MonkeyPatch) -> None:
    """As many draws are paid for as there are passes over the units."""
    draws = SampledRun.draws.fget

    def passes(self: SampledRun) -> int:
        return math.ceil(self.steps * self.batch / self.num_units) + draws(self) - self.steps

    patch.setattr(SampledRun, "draws", property(passes))


def passes_are_priced_for_steps(patch: pytest.MonkeyPatch) -> None:
    """All draws are allowed, and the price is that of the passes, wherever it is computed."""
    dominated_units = poisson_sampling.dominated_units

    def of_passes(multiplier: float, numerator: int, draws: int, slack: int, relation: NeighboringRelation) -> int:
        return dominated_units(multiplier, numerator, max(1, draws * numerator >> 53), slack, relation)

    patch.setattr(poisson_sampling, "dominated_units", of_passes)


def replacing_costs_as_much_as_emptying(patch: pytest.MonkeyPatch) -> None:
    """The figure for replaced units is that of emptied ones."""
    dominated_units = poisson_sampling.dominated_units

    def emptied(multiplier: float, numerator: int, draws: int, slack: int, _relation: NeighboringRelation) -> int:
        return dominated_units(multiplier, numerator, draws, slack, NeighboringRelation.ZERO_OUT)

    patch.setattr(poisson_sampling, "dominated_units", emptied)


def discrete_noise_is_priced_as_continuous(patch: pytest.MonkeyPatch) -> None:
    """σ² instead of σ² − 9, for releases on all records."""
    patch.setattr(accounting, "SMOOTHING_VARIANCE", 0)


def sampled_noise_is_priced_as_continuous(patch: pytest.MonkeyPatch) -> None:
    """The same for sampled ones."""
    patch.setattr(poisson_sampling, "SMOOTHING_VARIANCE", 0)


PLANTS = (
    Plant("units of the test split counted for the price", "R10", units_of_the_test_split_are_counted),
    Plant("as many draws paid for as passes", "R10", passes_are_taken_for_steps),
    Plant("draws priced as passes", "R10", passes_are_priced_for_steps),
    Plant("a replaced unit of a sampled run priced like an emptied one", "R10", replacing_costs_as_much_as_emptying),
    Plant("discrete noise priced as continuous", "R12", discrete_noise_is_priced_as_continuous),
    Plant("discrete noise of sampled runs priced as continuous", "R12", sampled_noise_is_priced_as_continuous),
)
