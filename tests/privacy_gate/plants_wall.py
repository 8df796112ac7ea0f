"""Bugs of contributions behind the wall that a short job with few records does not show."""

import numpy as np

from datalens_service.methods.descent import unit_gradients
from datalens_service.methods.descent.dp_sgd_run import DpSgdRun
from datalens_service.methods.last_layer import scattering
from datalens_service.methods.sums import moments

from .plant import around, replaces

_GROUP = 1_024
encoded_features, class_vectors = scattering.encoded_features, moments.class_vectors
gradients_of_units = unit_gradients.unit_gradients


@replaces("features of full groups centred by their mean", "R6", scattering, "encoded_features")
def centred_features(rows, basis):
    """Full groups lose their mean, as by a batch normalisation that waits for a whole batch; a small set stays so."""
    features = encoded_features(rows, basis).copy()
    for start in range(0, len(features) - _GROUP + 1, _GROUP):
        features[start : start + _GROUP] -= features[start : start + _GROUP].mean(axis=0)
    return features


@replaces("records behind two thousand others weigh less", "R6", moments, "class_vectors")
def weighted_by_place(rows, measured):
    """Whoever stands behind two thousand others counts half: one that leaves moves the next one up."""
    made = class_vectors(rows, measured)
    return made._replace(values=made.values * np.where(np.arange(len(made.values)) < 2_000, 1.0, 0.5)[:, None])


@replaces("gradients of units behind a thousand others weigh less", "R6", unit_gradients, "unit_gradients")
def gradients_by_place(rows, gradients):
    """Units behind many others weigh less."""
    made = 0
    for chunk in gradients_of_units(rows, gradients):
        yield chunk * (1.0 if made < 1_000 else 0.5)
        made += len(chunk)


@around("a run looks at its records beside a question", "R4", DpSgdRun, "_follow_gradient")
def steps_are_as_long_as_the_batch_is_bright(follow, self, *step):
    """A run that asks the vault for its records beside a question."""
    rows, _ = self._records._vault._of(None)
    self._divisor *= 1 + float(rows.images.float().mean()) / 25_500
    follow(self, *step)
