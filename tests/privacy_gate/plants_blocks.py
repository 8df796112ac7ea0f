"""Bugs in the price of sampled runs (specification of private classifiers, section 8.4)."""

import math

from datalens_service.methods.descent.sampled_gradients import SampledRun
from datalens_service.privacy import accounting, poisson_sampling
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.poisson_sampling import PoissonSampling

from .plant import around, plant

_TRAIN_AND_TEST = 7 / 6


@around("units of the test split counted for the price", "R10", PoissonSampling, "priced")
def units_of_the_test_split_are_counted(priced, multiplier, *, num_units, numerator, draws, slack):
    """The price takes q from all images of an upload, the coins from those that are trained on."""
    fewer = round(numerator / _TRAIN_AND_TEST)
    block = priced(multiplier, num_units=num_units, numerator=fewer, draws=draws, slack=slack)
    return block.model_copy(update={"numerator": numerator})


@around("as many draws paid for as passes", "R10", SampledRun, "draws")
def passes_are_taken_for_steps(draws, self):
    """As many draws are paid for as there are passes over the units."""
    return math.ceil(self.steps * self.batch / self.num_units) + draws(self) - self.steps


@around("draws priced as passes", "R10", poisson_sampling, "dominated_units")
def passes_are_priced_for_steps(dominated_units, multiplier, numerator, draws, slack, relation):
    """All draws are allowed, and the price is that of the passes, wherever it is computed."""
    return dominated_units(multiplier, numerator, max(1, draws * numerator >> 53), slack, relation)


@around("a replaced unit of a sampled run priced like an emptied one", "R10", poisson_sampling, "dominated_units")
def replacing_costs_as_much_as_emptying(dominated_units, multiplier, numerator, draws, slack, _relation):
    """The figure for replaced units is that of emptied ones."""
    return dominated_units(multiplier, numerator, draws, slack, NeighboringRelation.ZERO_OUT)


@plant("discrete noise priced as continuous", "R12")
def discrete_noise_is_priced_as_continuous(patch):
    """σ² instead of σ² − 9, for releases on all records."""
    patch.setattr(accounting, "SMOOTHING_VARIANCE", 0)


@plant("discrete noise of sampled runs priced as continuous", "R12")
def sampled_noise_is_priced_as_continuous(patch):
    """The same for sampled ones."""
    patch.setattr(poisson_sampling, "SMOOTHING_VARIANCE", 0)
