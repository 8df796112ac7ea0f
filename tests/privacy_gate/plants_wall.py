"""Bugs of contributions behind the wall that a short job with few records does not show."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import Rows
from datalens_service.mechanisms.unit_records import UnitRows
from datalens_service.methods.descent import unit_gradients
from datalens_service.methods.descent.dp_sgd_run import DpSgdRun
from datalens_service.methods.last_layer import scattering
from datalens_service.methods.sums import moments
from datalens_service.models.classifiers.encoded_features import FeatureBasis
from datalens_service.models.per_record import PerRecordGradients

from .plant import Plant, replaced

_GROUP = 1_024
encoded_features, class_vectors = scattering.encoded_features, moments.class_vectors
gradients_of_units = unit_gradients.unit_gradients


def centred_features(rows: Rows, basis: FeatureBasis) -> np.ndarray:
    """Full groups lose their mean, as by a batch normalisation that waits for a whole batch; a small set stays so."""
    features = encoded_features(rows, basis).copy()
    for start in range(0, len(features) - _GROUP + 1, _GROUP):
        features[start : start + _GROUP] -= features[start : start + _GROUP].mean(axis=0)
    return features


def weighted_by_place(rows: Rows, measured: moments.Measured) -> GroupedVectors:
    """Whoever stands behind two thousand others counts half: one that leaves moves the next one up."""
    made = class_vectors(rows, measured)
    return made._replace(values=made.values * np.where(np.arange(len(made.values)) < 2_000, 1.0, 0.5)[:, None])


def gradients_by_place(rows: UnitRows, gradients: PerRecordGradients) -> Iterator[torch.Tensor]:
    """Units behind many others weigh less."""
    made = 0
    for chunk in gradients_of_units(rows, gradients):
        yield chunk * (1.0 if made < 1_000 else 0.5)
        made += len(chunk)


def steps_are_as_long_as_the_batch_is_bright(patch: pytest.MonkeyPatch) -> None:
    """A run that asks the vault for its records beside a question."""
    follow = DpSgdRun._follow_gradient

    def followed(self: DpSgdRun, *step: Any) -> None:
        rows, _ = self._records._vault._of(None)
        self._divisor *= 1 + float(rows.images.float().mean()) / 25_500
        follow(self, *step)

    patch.setattr(DpSgdRun, "_follow_gradient", followed)


PLANTS = (
    Plant(
        "features of full groups centred by their mean",
        "R6",
        replaced(scattering, "encoded_features", centred_features),
    ),
    Plant("records behind two thousand others weigh less", "R6", replaced(moments, "class_vectors", weighted_by_place)),
    Plant(
        "gradients of units behind a thousand others weigh less",
        "R6",
        replaced(unit_gradients, "unit_gradients", gradients_by_place),
    ),
    Plant("a run looks at its records beside a question", "R4", steps_are_as_long_as_the_batch_is_bright),
)
