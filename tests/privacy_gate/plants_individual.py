"""Bugs of individual ε and of its histogram (specification of private classifiers, section 8.4)."""

import copy
import functools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.mechanisms import IndividualHistogram, Mechanism
from datalens_service.mechanisms.individual_histogram import IndividualEpsilons, IndividualFigures
from datalens_service.methods.descent import dp_sgd_run, individual_norms
from datalens_service.methods.descent.iterates import Iterates, KeptIterates
from datalens_service.privacy import individual
from datalens_service.subprocesses import individual_epsilon

from .plant import around, plant, replaces
from .plants_wall import VAULTS, remembered_units


@around("levels of norms are rounded down", "R12", individual, "norm_levels")
def levels_are_rounded_down(upwards, *arguments):
    """The nearest level below a norm."""
    return np.maximum(upwards(*arguments) - 1, 0)


@replaces("steps at the same level count once", "R12", individual, "level_counts")
def every_level_counts_once(levels):
    """Steps at the same level are told apart no more."""
    return {int(level): 1 for level in np.unique(levels)}


@around("bins end at the largest individual epsilon", "R6", IndividualHistogram, "exact_sum")
def bins_end_at_the_largest_unit(exact_sum, self, contributions):
    """The range follows the data."""
    largest = float(np.nanmax(contributions.epsilons, initial=0.0, where=np.isfinite(contributions.epsilons)))
    return exact_sum(self.model_copy(update={"largest_epsilon": largest or 1.0}), contributions)


@replaces("a replaced unit moves one bin", "R6", IndividualHistogram, "sensitivity_squared")
def replaced_units_move_one_bin(self, relation):
    """A replaced unit leaves one bin and enters another: Δ² is 2."""
    return Fraction(1)


@around("a histogram of individual epsilon without a charge", "R17", Mechanism, "release")
def histograms_are_free(release, self, contributions, *, step, account, noise):
    """Drawn without a charge."""
    if not isinstance(self, IndividualHistogram):
        return release(self, contributions, step=step, account=account, noise=noise)
    exact = self.exact_sum(contributions())
    return self.decode(exact + noise.discrete_gaussian(exact.shape, self.noise_stddev))


LOOKING: list[individual_norms.Looking] = []
"""What a histogram was made with last."""


def _exact_epsilons() -> IndividualEpsilons:
    return VAULTS[-1].answer(individual_norms.individual_epsilons, copy.deepcopy(LOOKING[-1]))


def _remembered(patch: pytest.MonkeyPatch) -> None:
    look = dp_sgd_run.Looking

    def remembered(*arguments: Any) -> individual_norms.Looking:
        LOOKING[:] = [look(*arguments)]
        return LOOKING[-1]

    patch.setattr(dp_sgd_run, "Looking", remembered)
    patch.setattr(*remembered_units)


@plant("individual epsilons in the file of iterates", "R17")
def epsilons_of_all_units_go_into_the_file(patch):
    """The file of iterates lists the ε of every unit, for convenience."""
    write = dp_sgd_run.write_iterates
    _remembered(patch)

    def listed(path: Path, *, values: Iterates, description: dict[str, Any], epsilons: list[float]) -> None:
        write(path, values=values, description={**description, "individual": epsilons})

    def bound(_write: Any, **named: Any) -> Any:
        return functools.partial(listed, epsilons=_exact_epsilons().epsilons.tolist(), **named)

    patch.setattr(dp_sgd_run, "partial", bound)


@plant("statistics of individual epsilon from exact counts", "R17")
def statistics_come_from_exact_counts(patch):
    """The histogram is charged and drawn, and mean and quantiles are those without noise."""
    from_counts = IndividualFigures.from_counts
    _remembered(patch)

    def exact(histogram: IndividualHistogram, _counts: Any) -> IndividualFigures:
        return from_counts(histogram, histogram.exact_sum(_exact_epsilons()))

    patch.setattr(IndividualFigures, "from_counts", exact)


@around("iterates are kept after their step", "R12", KeptIterates, "stacked")
def iterates_are_kept_after_their_step(stacked, self):
    """Step t is charged at the weights that it led to."""
    return np.roll(stacked(self), -1, axis=0)


@around("a record that is sent is charged for one step", "R12", individual_epsilon.ReleasedDescent, "_levels")
def a_record_that_is_sent_is_charged_for_one_step(levels, self, rows, values):
    """Whoever asks is shown what the last step cost."""
    return levels(self, rows, values[-1:])


@replaces("Rényi divergences at the next order", "R10", individual.SampledAccountant, "_converted")
def orders_are_shifted_by_one(self, divergences, delta):
    """An order is missing from one of two lists: every divergence is taken for that of the next order."""
    from dp_accounting.rdp import compute_epsilon

    return min(self._worst_epsilon, float(compute_epsilon(individual._ORDERS[1:], divergences[:-1].tolist(), delta)[0]))
