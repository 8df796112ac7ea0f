"""A run of DP-SGD: noisy gradients one after the other, and the files released beside the classifier.

Weights are post-processing and can leave at any step.
"""

from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientSum, IndividualHistogram, PlannedRelease, VonMisesFisherSum
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.mechanisms.unit_records import UnitRecords
from datalens_service.methods.base import Plan
from datalens_service.methods.descent.dp_sgd_parameters import DpSgdParameters, summed_units
from datalens_service.methods.descent.individual_norms import Looking, individual_epsilons
from datalens_service.methods.descent.iterates import (
    ITERATES_FILE,
    KeptIterates,
    descent_state,
    restore_descent,
    write_iterates,
)
from datalens_service.methods.descent.unit_gradients import choose_question, class_loss, image_gradients
from datalens_service.methods.public_start import start_from_public
from datalens_service.methods.script import Ask, Extras, Kept, Outcome, RunInputs, Script
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.released import ReleasedFile
from datalens_service.privacy.randomness import Integers

_STEPS_PER_STATE: Final = 50
"""A run in batches keeps so many sums before its state takes their place."""

_WARMUP_SHARE: Final = 1 / 6
"""Share of the steps over which a linear schedule rises."""


def descend(parameters: DpSgdParameters, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
    """Ask for one gradient after the other and follow each; then for the histogram of individual ε, if there is one."""
    gradients, histogram = plan.releases[0], plan.mechanism_at(plan.releases[0].count)
    descent = Descent(parameters, gradients, records.schema, inputs)
    units = UnitRecords(records, inputs.options.device)
    kept = KeptIterates() if parameters.accounting == "per_instance" else None
    first = 0
    if inputs.resumed is not None:
        first = inputs.resumed.step
        descent.restore(inputs.resumed.state)
        if kept is not None:
            kept.restore(inputs.resumed.iterates, first)

    def outcome() -> Outcome:
        if kept is None:
            return Outcome(descent.classifier())
        return Outcome(descent.classifier(), extras=Extras((_file_of(kept, parameters, plan, records.schema, inputs),)))

    def state_before(step: int) -> Kept | None:
        """Return the state that takes the place of sums of batches, which nobody draws again, every so many steps."""
        if gradients.mechanism.block() is None or step == first or step % _STEPS_PER_STATE:
            return None
        return Kept(descent.state(), None if kept is None else kept.take_new())

    for step in range(first, gradients.count):
        keep, weights = state_before(step), descent.iterate()
        contribution, seen = choose_question(descent.gradients, parameters)
        descent.follow((yield Ask(units, gradients.mechanism, contribution, seen, outcome, keep)), step)
        if kept is not None:
            kept.append(weights)
    if not isinstance(histogram, IndividualHistogram) or kept is None:
        return outcome()
    keep = state_before(gradients.count)
    looking = Looking(descent.gradients, descent.mechanism, histogram, kept.stacked())
    counts: Integers = yield Ask(units, histogram, individual_epsilons, looking, outcome, keep)
    model, start, (files, _) = outcome()
    return Outcome(model, start, Extras(files, IndividualFigures.from_counts(histogram, counts)))


def _file_of(
    kept: KeptIterates, parameters: DpSgdParameters, plan: Plan, schema: Schema, inputs: RunInputs
) -> ReleasedFile:
    """Return the file of the weights before each step, with everything else that individual ε needs."""
    epsilon, delta = inputs.price
    description = {
        "schema": schema.model_dump(mode="json"),
        "method": parameters.model_dump(mode="json"),
        "plan": plan.model_dump(mode="json"),
        "epsilon": epsilon,
        "delta": delta,
    }
    write = partial(write_iterates, values=kept.stacked(), description=description)
    return ReleasedFile(ITERATES_FILE, "application/octet-stream", write)


class Descent:
    """A network whose weights follow released gradients, and the average of its weights."""

    loss = staticmethod(class_loss)

    def __init__(
        self, parameters: DpSgdParameters, gradients: PlannedRelease, schema: Schema, inputs: RunInputs
    ) -> None:
        if not isinstance(gradients.mechanism, GradientSum | VonMisesFisherSum):
            raise TypeError("a plan of dp_sgd consists of gradients")
        self._parameters, self._schema, self._device = parameters, schema, inputs.options.device
        self._mechanism, self._count = gradients.mechanism, gradients.count
        self._divisor = summed_units(gradients.mechanism, schema.num_units)
        seed = inputs.randomness.seed("classifier")
        network = build_network(self._settings(), schema, seed)
        if inputs.public is not None and inputs.resumed is None:
            start_from_public(network, self._settings(), schema, inputs.public, seed)
        self._network = network.to(self._device)
        self.gradients = image_gradients(self._network, schema, self.loss)
        self._optimizer = self._make_optimizer()
        self._average = [weight.detach().clone() for weight in self._network.parameters()]

    def classifier(self) -> Classifier:
        """Return the network with the average of its weights so far."""
        names = [name for name, _ in self._network.named_parameters()]
        tensors = {name: value.cpu().numpy().copy() for name, value in zip(names, self._average, strict=True)}
        return Classifier(self._schema, self._settings(), tensors)

    @property
    def mechanism(self) -> GradientSum:
        """Return the mechanism of every step of clipped gradients."""
        if not isinstance(self._mechanism, GradientSum):
            raise TypeError("noisy directions have no clipped gradients")
        return self._mechanism

    def iterate(self) -> NDArray[np.float32]:
        """Return a copy of all weights (weights,) after the steps made so far: released, before averaging."""
        return np.concatenate([weight.detach().cpu().numpy().ravel() for weight in self._weights()])

    def follow(self, released: NDArray[np.float64], step: int) -> None:
        """Take a step of the optimizer along a noisy sum of gradients."""
        self._set_learning_rate(step)
        self._apply_gradient(released / self._divisor)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the released position of the descent."""
        return descent_state(self._weights(), self._average, self._optimizer)

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from what `state` gave."""
        restore_descent(state, self._weights(), self._average, self._optimizer)

    def _weights(self) -> list[Tensor]:
        return list(self._network.parameters())

    def _settings(self) -> dict[str, Any]:
        return {"architecture": self._parameters.architecture}

    def _make_optimizer(self) -> torch.optim.Optimizer:
        parameters, weights = self._parameters, list(self._network.parameters())
        if parameters.optimizer == "adam":
            return torch.optim.Adam(weights, parameters.learning_rate)
        return torch.optim.SGD(weights, parameters.learning_rate, momentum=parameters.momentum)

    def _set_learning_rate(self, step: int) -> None:
        """Set the rate of a step, a function of public numbers."""
        if self._parameters.learning_rate_schedule == "constant":
            return
        rising = max(1, round(_WARMUP_SHARE * self._count))
        falling = max(1, self._count - rising)
        share = min(1.0, (step + 1) / rising, (self._count - step) / falling)
        for group in self._optimizer.param_groups:
            group["lr"] = self._parameters.learning_rate * share

    def _apply_gradient(self, gradient: NDArray[np.float64]) -> None:
        weights = list(self._network.parameters())
        whole = torch.from_numpy(gradient).to(self._device, torch.float32)
        parts = torch.split(whole, [weight.numel() for weight in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.view_as(weight).clone()
        self._optimizer.step()
        with torch.no_grad():
            for average, weight in zip(self._average, weights, strict=True):
                average.lerp_(weight, 1 - self._parameters.averaging)
