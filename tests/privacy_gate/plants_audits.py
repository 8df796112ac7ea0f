"""Bugs of audits: figures that leave the owner's hands, and references that know what they should not."""

import numpy as np

from datalens_service.audits import targets
from datalens_service.audits.audit import take_units
from datalens_service.jobs import packaging

from .plant import around, plant, replaces


@plant("the owner's report as the releasable one", "R54")
def figures_of_attacks_are_in_the_bundle(patch):
    """The copy of a report that anybody may get is the owner's."""
    patch.setattr(packaging, "releasable_view", packaging.owner_view)


@around("figures of attacks on the card", "R54", packaging, "card")
def figures_of_attacks_are_on_the_card(card, report):
    """The card of a release says how well attacks did."""
    return {**card(report), "attacks": [found.model_dump(mode="json") for found in report.attacks]}


@replaces("references of a rehearsal that know candidates", "R54", targets._Quarters, "reference")
def references_of_a_rehearsal_know_candidates(self):
    """References learn from a random part of all units."""
    units = np.unique(self._dataset.train.unit_ids)
    return take_units(self._dataset, self._rng.choice(units, self._size, replace=False))


@replaces("references of an attack that know candidates", "R54", targets._TrainAndTest, "reference")
def references_of_a_released_model_know_candidates(self):
    """The same for attacks on a model that was released."""
    units = np.unique(self._dataset.train.unit_ids)
    return take_units(self._dataset, self._rng.choice(units, len(self._rest) // 2, replace=False))
