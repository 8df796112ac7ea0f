"""Bugs of audits: figures that leave the owner's hands, and references that know what they should not."""

import numpy as np
import pytest

from datalens_service.audits import rehearsal, released_model
from datalens_service.audits.audit import take_units
from datalens_service.data.dataset import Dataset
from datalens_service.evaluation.report.build import Report
from datalens_service.jobs import packaging

from .plant import Plant


def figures_of_attacks_are_in_the_bundle(patch: pytest.MonkeyPatch) -> None:
    """The copy of a report that anybody may get is the owner's."""
    patch.setattr(packaging, "releasable_view", packaging.owner_view)


def figures_of_attacks_are_on_the_card(patch: pytest.MonkeyPatch) -> None:
    """The card of a release says how well attacks did."""
    card = packaging.card

    def with_figures(report: Report) -> dict[str, object]:
        return {**card(report), "attacks": [found.model_dump(mode="json") for found in report.attacks]}

    patch.setattr(packaging, "card", with_figures)


def references_of_a_rehearsal_know_candidates(patch: pytest.MonkeyPatch) -> None:
    """References learn from a random part of all units."""

    def of_all(self: rehearsal._Quarters) -> Dataset:
        units = np.unique(self._dataset.train.unit_ids)
        return take_units(self._dataset, self._rng.choice(units, self._size, replace=False))

    patch.setattr(rehearsal._Quarters, "reference", of_all)


def references_of_a_released_model_know_candidates(patch: pytest.MonkeyPatch) -> None:
    """The same for attacks on a model that was released."""

    def of_all(self: released_model._TrainAndTest) -> Dataset:
        units = np.unique(self._dataset.train.unit_ids)
        return take_units(self._dataset, self._rng.choice(units, len(self._rest) // 2, replace=False))

    patch.setattr(released_model._TrainAndTest, "reference", of_all)


PLANTS = (
    Plant("the owner's report as the releasable one", "R54", figures_of_attacks_are_in_the_bundle),
    Plant("figures of attacks on the card", "R54", figures_of_attacks_are_on_the_card),
    Plant("references of a rehearsal that know candidates", "R54", references_of_a_rehearsal_know_candidates),
    Plant("references of an attack that know candidates", "R54", references_of_a_released_model_know_candidates),
)
