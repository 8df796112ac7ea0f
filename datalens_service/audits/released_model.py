"""An attack on a model that was released: training records are members, the owner's test images are not.

Attacks that need reference models train them here, on training records that are no candidates. They are dropped when
they are scored: nothing leaves the process but figures for the owner.
"""

from typing import Final

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
from datalens_service.models.released import ReleasedModel

PRIVATE_READS = ("attacks",)

FEWEST_TEST_IMAGES: Final = 50


def attack_released_model(
    model: ReleasedModel, dataset: Dataset, train: Train, mu: float | None, settings: AuditSettings
) -> AuditResult:
    """Tell training records of `model` from the owner's test images.

    Args:
        train: Trains a reference model of the same method; called only for attacks that compare with some.

    Raises:
        InvalidInput: Too few test images, too few units for references, or an attack that does not exist.
    """
    settings.check_attacks()
    if dataset.test is None or len(dataset.test) < FEWEST_TEST_IMAGES:
        raise InvalidInput(f"This audit needs a test split of at least {FEWEST_TEST_IMAGES} images.")
    if settings.needs_references and dataset.schema.num_units < FEWEST_UNITS:
        raise InvalidInput(f"Attacks with reference models need at least {FEWEST_UNITS} units.")
    parts = _TrainAndTest(dataset, dataset.test, settings)
    evidence = gather_evidence(model, parts, train, settings)
    return state_result(evidence, dataset, dataset.schema.num_units, mu, settings, model.result)


class _TrainAndTest:
    """Members are a quarter of the units where references are trained, which learn from a half of the others."""

    def __init__(self, dataset: Dataset, test: Split, settings: AuditSettings) -> None:
        self._dataset, self._test = dataset, test
        self._rng = split_generator(dataset, settings.seed)
        order = self._rng.permutation(np.unique(dataset.train.unit_ids))
        size = len(order) // 4 if settings.needs_references else len(order)
        self._members, self._rest = order[:size], order[size:]

    def reference(self) -> Dataset:
        """What another reference learns from: no member, no test image."""
        return take_units(self._dataset, self._rng.choice(self._rest, len(self._rest) // 2, replace=False))

    def candidates(self, most: int) -> tuple[Split, NDArray[np.bool_]]:
        """As many training records and test images as asked for, in random order."""
        rows = self._rng.permutation(rows_of_units(self._dataset, self._members))[:most]
        others = self._rng.permutation(len(self._test))[:most]
        train, test = self._dataset.train, self._test
        images = np.concatenate([train.images[rows], test.images[others]])
        labels = np.concatenate([train.labels[rows], test.labels[others]])
        return Split(images, labels), np.arange(len(labels)) < len(rows)
