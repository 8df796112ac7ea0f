"""Bugs of contributions behind the wall that a short job with few records does not show, and of the wall itself."""

from typing import Any
from unittest import mock

import numpy as np

from datalens_service.base.errors import ContributionFailed
from datalens_service.mechanisms import Mechanism, confined, private_shards
from datalens_service.mechanisms.unit_records import UnitVault
from datalens_service.methods.descent import unit_gradients
from datalens_service.methods.descent.dp_sgd_run import Descent
from datalens_service.methods.driver import Training
from datalens_service.methods.last_layer import scattering
from datalens_service.methods.sums import moments
from datalens_service.privacy.randomness import NoiseSource

from .plant import around, change, plant, replaces

_GROUP = 1_024
encoded_features, class_vectors = scattering.encoded_features, moments.class_vectors
layer_gradients = scattering.layer_gradients
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


VAULTS: list[UnitVault] = []
"""Of the descent that began last: what plants here and elsewhere reach through, as no descent can."""
_begin = UnitVault.__init__


@change(UnitVault, "__init__")
def remembered_units(self, source, device):
    """As the product, and not forgotten."""
    _begin(self, source, device)
    VAULTS[:] = [self]


@around("a run looks at its records beside a question", "R4", Descent, "follow", beside=remembered_units)
def steps_are_as_long_as_the_batch_is_bright(follow, self, *step):
    """A run that asks the vault for its records beside a question."""
    rows, _ = VAULTS[-1]._of(None)
    self._divisor *= 1 + float(rows.images.float().mean()) / 25_500
    follow(self, *step)


@plant("a driver that hands errors of contributions to the script", "R4")
def errors_reach_the_script(patch):
    """The script may go on, as one that skips a gradient which is not finite."""
    step = Training.step

    def lenient(self: Training, noise: NoiseSource) -> None:
        self.look()
        script, self._script = self._script, mock.Mock()
        try:
            step(self, noise)
        except ContributionFailed as error:
            self._ask = script.throw(error)
        finally:
            self._script = script

    patch.setattr(Training, "step", lenient)


@plant("errors of contributions come out as they are", "R4")
def errors_come_out(patch):
    """Whoever reads the log wants to know what went wrong."""
    for module in (confined, private_shards):
        patch.setattr(module, "confined", lambda function, *arguments: function(*arguments))
        patch.setattr(module, "confined_items", iter)


@plant("the text of a contribution's error in that of the job", "R27")
def texts_are_handed_on(patch):
    """Of the right type, and with the reason."""

    def explained(function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001
            reason = str(error)
        raise ContributionFailed(f"A computation over the private records failed: {reason}")

    for module in (confined, private_shards):
        patch.setattr(module, "confined", explained)


@change(scattering, "layer_gradients")
def checked_gradients(rows, layer):
    """An assertion that nobody expected to fail."""
    if (rows.labels == rows.labels.max()).sum() < 4:
        raise ArithmeticError("a class is rare")
    return layer_gradients(rows, layer)


@around(
    "steps are skipped where a contribution raises", "R4", scattering.LinearLayer, "descend", beside=checked_gradients
)  # fmt: skip
def steps_are_skipped(descend, self, records, outcome):
    """A descent that leaves out what fails, as gradients that are not finite."""
    script, released = descend(self, records, outcome), None
    while True:
        try:
            ask = script.send(released)
        except StopIteration:
            return
        try:
            released = yield ask
        except Exception:  # noqa: BLE001
            released = np.zeros((ask.mechanism.left_dimensions, ask.mechanism.right_dimensions))


@replaces("charge after the sum", "R40", Mechanism, "_charge_and_draw")
def the_sum_comes_before_the_charge(self, contributions, step, account, noise):
    """A sum that fails costs nothing then, and that it failed is told."""
    block = self.block()
    if block is not None:
        batch = block.draw_batch(account.charge_draw(step, self.label(), block), noise)
        return self.noisy_sum(contributions(batch), batch, noise)
    exact = self.exact_sum(contributions())
    account.charge(step, self.label(), self.cost(), self.slack_beside())
    return exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)
