"""Rehearsal: train the same method on parts of the owner's records, and attack what comes out.

The owner knows who was in, so the attack can be scored. Nothing is charged and no model is stored, because nothing
leaves the process but figures for the owner. They depend on private records: they are not to be passed on.
"""

import numpy as np
from numpy.typing import NDArray

from datalens_service.audits.audit import (
    FEWEST_UNITS,
    AuditResult,
    AuditSettings,
    Train,
    gather_evidence,
    rows_of_units,
    split_generator,
    state_result,
    take_units,
)
from datalens_service.data.dataset import Dataset, Split
from datalens_service.errors import InvalidInput

PRIVATE_READS = ("attacks",)


def rehearse(dataset: Dataset, train: Train, mu: float | None, settings: AuditSettings | None = None) -> AuditResult:
    """Train a target and references on parts of `dataset`, and attack the target.

    A quarter of the units trains the target, another quarter is held out, and each reference learns from a random half
    of the rest: all models learn from equally many units. Halves are drawn by keyed identity. Where units are declared
    groups of records, an attack tells whole groups.

    Args:
        train: Trains and returns one model; called 1 + references times.
        mu: Of one such model, for one record; None if it is not private.

    Raises:
        InvalidInput: Too few units, or an attack that does not exist.
    """
    settings = settings or AuditSettings()
    settings.check_attacks()
    if dataset.schema.num_units < FEWEST_UNITS:
        raise InvalidInput(f"A rehearsal needs at least {FEWEST_UNITS} units, of which a quarter trains each model.")
    parts = _Quarters(dataset, settings)
    target = train(parts.target, settings.seed)
    evidence = gather_evidence(target, parts, train, settings)
    return state_result(evidence, dataset, parts.target.schema.num_units, mu, settings, target.result)


def units_per_model(num_units: int) -> int:
    """How many units each model of a rehearsal learns from."""
    return num_units // 4


class _Quarters:
    """Who trains what: a keyed order of units, cut into quarters."""

    def __init__(self, dataset: Dataset, settings: AuditSettings) -> None:
        self._dataset = dataset
        units = np.unique(dataset.train.unit_ids)
        self._rng = split_generator(dataset, settings.seed)
        order = self._rng.permutation(units)
        self._size = units_per_model(len(units))
        self._members, self._others = order[: self._size], order[self._size : 2 * self._size]
        self._rest = order[2 * self._size :]

    @property
    def target(self) -> Dataset:
        """What the audited model learns from."""
        return take_units(self._dataset, self._members)

    def reference(self) -> Dataset:
        """What another reference learns from; drawn anew each time."""
        return take_units(self._dataset, self._rng.choice(self._rest, self._size, replace=False))

    def candidates(self, most: int) -> tuple[Split, NDArray[np.bool_]]:
        """Records to be told apart, and which of them the audited model learned from."""
        members = rows_of_units(self._dataset, self._members)[:most]
        others = rows_of_units(self._dataset, self._others)[:most]
        train, rows = self._dataset.train, np.concatenate([members, others])
        units = None if train.units is None else train.units[rows]
        return Split(train.images[rows], train.labels[rows], units), np.arange(len(rows)) < len(members)
