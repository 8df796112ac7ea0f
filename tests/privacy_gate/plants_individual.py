"""Bugs of individual ε and of its histogram (specification of private classifiers, section 8.4)."""

import copy
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.mechanisms import IndividualHistogram, Mechanism
from datalens_service.mechanisms.individual_histogram import IndividualEpsilons, IndividualFigures
from datalens_service.methods.base import Extras
from datalens_service.methods.descent import dp_sgd_run, individual_norms
from datalens_service.methods.descent.iterates import Iterates, KeptIterates
from datalens_service.privacy import individual
from datalens_service.privacy.randomness import Integers, NoiseSource
from datalens_service.programs import individual_epsilon

from .plant import Plant


def levels_are_rounded_down(patch: pytest.MonkeyPatch) -> None:
    """The nearest level below a norm."""
    upwards = individual.norm_levels
    patch.setattr(individual, "norm_levels", lambda *arguments: np.maximum(upwards(*arguments) - 1, 0))


def every_level_counts_once(patch: pytest.MonkeyPatch) -> None:
    """Steps at the same level are told apart no more."""
    patch.setattr(individual, "level_counts", lambda levels: {int(level): 1 for level in np.unique(levels)})


def bins_end_at_the_largest_unit(patch: pytest.MonkeyPatch) -> None:
    """The range follows the data."""
    exact_sum = IndividualHistogram.exact_sum

    def stretched(self: IndividualHistogram, contributions: IndividualEpsilons) -> Integers:
        largest = float(np.nanmax(contributions.epsilons, initial=0.0, where=np.isfinite(contributions.epsilons)))
        return exact_sum(self.model_copy(update={"largest_epsilon": largest or 1.0}), contributions)

    patch.setattr(IndividualHistogram, "exact_sum", stretched)


def replaced_units_move_one_bin(patch: pytest.MonkeyPatch) -> None:
    """A replaced unit leaves one bin and enters another: Δ² is 2."""
    patch.setattr(IndividualHistogram, "sensitivity_squared", lambda self, relation: Fraction(1))


def histograms_are_free(patch: pytest.MonkeyPatch) -> None:
    """Drawn without a charge."""
    release = Mechanism.release

    def uncharged(
        self: Mechanism[IndividualEpsilons, Integers],
        contributions: Callable[..., IndividualEpsilons],
        *,
        step: int,
        account: object,
        noise: NoiseSource,
    ) -> Integers:
        if not isinstance(self, IndividualHistogram):
            return release(self, contributions, step=step, account=account, noise=noise)
        exact = self.exact_sum(contributions())
        return self.decode(exact + noise.discrete_gaussian(exact.shape, self.noise_stddev))

    patch.setattr(Mechanism, "release", uncharged)


def epsilons_of_all_units_go_into_the_file(patch: pytest.MonkeyPatch) -> None:
    """The file of iterates lists the ε of every unit, for convenience."""
    write = dp_sgd_run.write_iterates
    extras = dp_sgd_run.DpSgdRun.extras

    def with_list(self: dp_sgd_run.DpSgdRun, epsilon: float, delta: float) -> Extras:
        epsilons = _exact_epsilons(self).epsilons.tolist()

        def listed(path: Path, *, values: Iterates, description: dict[str, Any]) -> None:
            write(path, values=values, description={**description, "individual": epsilons})

        patch.setattr(dp_sgd_run, "write_iterates", listed)
        return extras(self, epsilon, delta)

    patch.setattr(dp_sgd_run.DpSgdRun, "extras", with_list)


def _exact_epsilons(descent: dp_sgd_run.DpSgdRun) -> IndividualEpsilons:
    looking = individual_norms.Looking(
        descent.gradients, descent.mechanism, descent._histogram, descent._kept.stacked()
    )
    return descent._records._vault.answer(individual_norms.individual_epsilons, copy.deepcopy(looking))


def statistics_come_from_exact_counts(patch: pytest.MonkeyPatch) -> None:
    """The histogram is charged and drawn, and mean and quantiles are those without noise."""

    def exact(self: dp_sgd_run.DpSgdRun) -> IndividualFigures:
        assert isinstance(self._histogram, IndividualHistogram)
        return IndividualFigures.from_counts(self._histogram, self._histogram.exact_sum(_exact_epsilons(self)))

    patch.setattr(dp_sgd_run.DpSgdRun, "_individual_figures", exact)


def iterates_are_kept_after_their_step(patch: pytest.MonkeyPatch) -> None:
    """Step t is charged at the weights that it led to."""
    stacked = KeptIterates.stacked
    patch.setattr(KeptIterates, "stacked", lambda self: np.roll(stacked(self), -1, axis=0))


def a_record_that_is_sent_is_charged_for_one_step(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks is shown what the last step cost."""
    levels = individual_epsilon.Descent._levels
    patch.setattr(individual_epsilon.Descent, "_levels", lambda self, rows, values: levels(self, rows, values[-1:]))


def orders_are_shifted_by_one(patch: pytest.MonkeyPatch) -> None:
    """An order is missing from one of two lists: every divergence is taken for that of the next order."""

    def shifted(self: individual.SampledAccountant, divergences: individual.Floats, delta: float) -> float:
        from dp_accounting.rdp import compute_epsilon

        return min(
            self._worst_epsilon, float(compute_epsilon(individual._ORDERS[1:], divergences[:-1].tolist(), delta)[0])
        )

    patch.setattr(individual.SampledAccountant, "_converted", shifted)


PLANTS = (
    Plant("levels of norms are rounded down", "R12", levels_are_rounded_down),
    Plant("steps at the same level count once", "R12", every_level_counts_once),
    Plant("Rényi divergences at the next order", "R10", orders_are_shifted_by_one),
    Plant("bins end at the largest individual epsilon", "R6", bins_end_at_the_largest_unit),
    Plant("a replaced unit moves one bin", "R6", replaced_units_move_one_bin),
    Plant("a histogram of individual epsilon without a charge", "R17", histograms_are_free),
    Plant("individual epsilons in the file of iterates", "R17", epsilons_of_all_units_go_into_the_file),
    Plant("statistics of individual epsilon from exact counts", "R17", statistics_come_from_exact_counts),
    Plant("iterates are kept after their step", "R12", iterates_are_kept_after_their_step),
    Plant("a record that is sent is charged for one step", "R12", a_record_that_is_sent_is_charged_for_one_step),
)
