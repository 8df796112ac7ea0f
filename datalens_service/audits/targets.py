"""The targets of an audit: a method in rehearsal, a network without privacy, or a model that was released.

Nothing is charged and no model is stored, because nothing leaves the process but figures for the owner, who knows whose
records were used. They depend on private records: they are not to be passed on.

 - A rehearsal trains the same method on parts of the owner's records, and attacks what comes out.
 - Of a released model, training records are members, the owner's test images of other persons are not. Attacks that
   need reference models train them here, on training records that are no candidates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Dataset, Split
from datalens_service.evaluation.metrics.reference import find_caveats, others_than
from datalens_service.models.released import ReleasedModel

if TYPE_CHECKING:
    from datalens_service.models.classifiers.classifier import Classifier

PRIVATE_READS = ("attacks",)

FEWEST_TEST_IMAGES: Final = 50
ARCHITECTURE: Final = "mlp"
"""The architecture of the network without privacy: a hidden layer of 128 units."""
_LEARNING_RATE: Final = 1e-3
_BATCH: Final = 8


def rehearse(dataset: Dataset, train: Train, mu: float | None, settings: AuditSettings) -> AuditResult:
    """Train a target and references on parts of `dataset`, and attack the target.

    A quarter of the units trains the target, another quarter is held out, and each reference learns from a random half
    of the rest: all models learn from equally many units. Halves are drawn by keyed identity. Where units are declared
    groups of records, an attack tells whole groups.

    Args:
        train: Trains and returns one model; called 1 + references times.
        mu: μ of one such model, for one record; None if it is not private.

    Raises:
        InvalidInput: There are too few units.
    """
    if dataset.schema.num_units < FEWEST_UNITS:
        raise InvalidInput(f"A rehearsal needs at least {FEWEST_UNITS} units, of which a quarter trains each model.")
    parts = _Quarters(dataset, settings)
    target = train(parts.target, settings.seed)
    evidence = gather_evidence(target, parts, train, settings)
    return state_result(evidence, dataset, parts.target.schema.num_units, mu, settings, target.result)


def units_per_model(num_units: int) -> int:
    """Return the number of units that each model of a rehearsal learns from."""
    return num_units // 4


class _Quarters:
    """A keyed order of units, cut into quarters that train different models."""

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
        """Return the records that the audited model learns from."""
        return take_units(self._dataset, self._members)

    def reference(self) -> Dataset:
        return take_units(self._dataset, self._rng.choice(self._rest, self._size, replace=False))

    def candidates(self, most: int) -> tuple[Split, NDArray[np.bool_]]:
        """Return records of so many units of either kind, and True for those that the audited model learned from.

        Units are in random order: an upload that is sorted by class is represented by all of its classes.
        """
        members = rows_of_units(self._dataset, self._members[:most])
        others = rows_of_units(self._dataset, self._others[:most])
        train, rows = self._dataset.train, np.concatenate([members, others])
        units = None if train.units is None else train.units[rows]
        return Split(train.images[rows], train.labels[rows], units), np.arange(len(rows)) < len(members)


def attack_released_model(
    model: ReleasedModel, dataset: Dataset, train: Train, mu: float | None, settings: AuditSettings
) -> AuditResult:
    """Tell training records of `model` from the owner's test images of persons without training records.

    Args:
        train: Trains a reference model of the same method; called only for attacks that compare with some.

    Raises:
        InvalidInput: There are too few test images of persons without training images, or too few units for references.
    """
    test = None if dataset.test is None else others_than(dataset.train, dataset.test)
    if test is None or len(test.labels) < FEWEST_TEST_IMAGES:
        raise InvalidInput(
            f"This audit needs a test split of at least {FEWEST_TEST_IMAGES} images, of persons who have no training "
            "images if the upload says who is who."
        )
    if settings.needs_references and dataset.schema.num_units < FEWEST_UNITS:
        raise InvalidInput(f"Attacks with reference models need at least {FEWEST_UNITS} units.")
    parts = _TrainAndTest(dataset, test, settings)
    evidence = gather_evidence(model, parts, train, settings)
    result = state_result(evidence, dataset, dataset.schema.num_units, mu, settings, model.result)
    return result.model_copy(update={"note": " ".join([result.note, *find_caveats(dataset, None)])})


class _TrainAndTest:
    """Training records are members, test images are others; references learn from units that are neither."""

    def __init__(self, dataset: Dataset, test: Split, settings: AuditSettings) -> None:
        self._dataset, self._test = dataset, test
        self._rng = split_generator(dataset, settings.seed)
        order = self._rng.permutation(np.unique(dataset.train.unit_ids))
        size = len(order) // 4 if settings.needs_references else len(order)
        self._members, self._rest = order[:size], order[size:]

    def reference(self) -> Dataset:
        """Return the records of another reference: no member, no test image."""
        return take_units(self._dataset, self._rng.choice(self._rest, len(self._rest) // 2, replace=False))

    def candidates(self, most: int) -> tuple[Split, NDArray[np.bool_]]:
        """Return as many training records and test images as asked for, in random order."""
        rows = self._rng.permutation(rows_of_units(self._dataset, self._members))[:most]
        others = self._rng.permutation(len(self._test.labels))[:most]
        train, test = self._dataset.train, self._test
        images = np.concatenate([train.images[rows], test.images[others]])
        labels = np.concatenate([train.labels[rows], test.labels[others]])
        return Split(images, labels), np.arange(len(labels)) < len(rows)


def train_unprotected(dataset: Dataset, seed: int, passes: int, architecture: str = ARCHITECTURE) -> Classifier:
    """Train a network by Adam without clipping and without noise, for rehearsals alone."""
    import torch
    from torch import nn

    from datalens_service.models.classifiers.architectures import build_network
    from datalens_service.models.classifiers.classifier import Classifier

    settings = {"architecture": architecture}
    network = build_network(settings, dataset.schema, seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    pixels = np.ascontiguousarray(dataset.train.images.transpose(0, 3, 1, 2))
    images, labels = torch.from_numpy(pixels).float() / 255, torch.from_numpy(dataset.train.labels)
    order = torch.Generator().manual_seed(seed)
    for _ in range(passes):
        for rows in torch.split(torch.randperm(len(labels), generator=order), _BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    tensors = {name: value.detach().numpy().copy() for name, value in network.named_parameters()}
    return Classifier(dataset.schema, settings, tensors)
