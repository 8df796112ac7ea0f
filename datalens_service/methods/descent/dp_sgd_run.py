"""A run of DP-SGD: noisy gradients one after the other, and what is released beside the classifier."""

from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.mechanisms import Account, GradientSum, IndividualHistogram, VonMisesFisherSum
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.mechanisms.unit_records import UnitRecords
from datalens_service.methods.base import ExecutionOptions, Extras, Plan
from datalens_service.methods.descent.dp_sgd_parameters import DpSgdParameters, summed_units
from datalens_service.methods.descent.individual_norms import Looking, individual_epsilons
from datalens_service.methods.descent.iterates import (
    ITERATES_FILE,
    KeptIterates,
    descent_state,
    restore_descent,
    write_iterates,
)
from datalens_service.methods.descent.unit_gradients import (
    choose_question,
    class_loss,
    image_gradients,
)
from datalens_service.methods.public_start import PublicImages, start_from_public
from datalens_service.methods.sums.record_sums import StatelessRun
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.released import ReleasedFile
from datalens_service.privacy.randomness import Integers, NoiseSource, TrainingRandomness

_STEPS_PER_STATE: Final = 50
"""Of a run in batches: so many sums are kept until the state takes their place."""

_WARMUP_SHARE: Final = 1 / 6
"""Of the steps, over which a linear schedule rises."""


class DpSgdRun(StatelessRun):
    """Descent in which every gradient is released; weights are post-processing and can leave at any step."""

    loss = staticmethod(class_loss)

    def __init__(
        self,
        parameters: DpSgdParameters,
        plan: Plan,
        records: PrivateRecords,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._parameters = parameters
        self._schema = records.schema
        release = plan.releases[0]
        if not isinstance(release.mechanism, GradientSum | VonMisesFisherSum):
            raise TypeError("a plan of dp_sgd consists of gradients")
        self._mechanism, self._count = release.mechanism, release.count
        self._plan = plan
        self._histogram = next((one.mechanism for one in plan.releases[1:]), None)
        self._kept = KeptIterates() if parameters.accounting == "per_instance" else None
        self._noisy_histogram: Integers | None = None
        self._device = options.device
        self._records = UnitRecords(records, options.device)
        self._divisor = summed_units(release.mechanism, records.schema.num_units)
        self._seed = seed = randomness.seed("classifier")
        self._network = build_network(self._settings(), records.schema, seed).to(options.device)
        self.gradients = image_gradients(self._network, records.schema, self.loss)
        self._optimizer = self._make_optimizer()
        self._average = [weight.detach().clone() for weight in self._network.parameters()]
        self._first_step = 0

    def start_from(self, public: PublicImages) -> None:
        """Replace the first weights by those that the network learns from public images; before any step."""
        network = self._network.cpu()
        start_from_public(network, self._settings(), self._schema, public, self._seed)
        self._network = network.to(self._device)
        self._optimizer = self._make_optimizer()
        self._average = [weight.detach().clone() for weight in self._network.parameters()]

    @property
    def steps(self) -> int:
        """One for each gradient, and one for the histogram."""
        return self._plan.steps

    def may_stop_before(self, step: int) -> bool:
        """Weights exist after the first step."""
        return step > 0

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """One noisy gradient and a step of the optimizer along it; after all of them the histogram."""
        if step == 0:
            self._continue_from(account)
        if step < self._first_step:
            return
        if self._histogram is not None and step == self._count:
            self._release_histogram(step, account, noise)
            return
        weights = self.iterate()
        self._follow_gradient(step, account, noise)
        if self._kept is not None:
            self._kept.append(weights)
        if self._mechanism.block() is not None and (step + 1) % _STEPS_PER_STATE == 0:
            state = descent_state(self._weights(), self._average, self._optimizer)
            account.advance(step + 1, state, None if self._kept is None else self._kept.take_new())

    def extras(self, epsilon: float, delta: float) -> Extras:
        """The iterates, if they are kept, and figures of the histogram, if it was released."""
        if self._kept is None:
            return Extras()
        description = {
            "schema": self._schema.model_dump(mode="json"),
            "method": self._parameters.model_dump(mode="json"),
            "plan": self._plan.model_dump(mode="json"),
            "epsilon": epsilon,
            "delta": delta,
        }
        write = partial(write_iterates, values=self._kept.stacked(), description=description)
        return Extras((ReleasedFile(ITERATES_FILE, "application/octet-stream", write),), self._individual_figures())

    def result(self) -> Classifier:
        """The network with the average of its weights so far."""
        names = [name for name, _ in self._network.named_parameters()]
        tensors = {name: value.cpu().numpy().copy() for name, value in zip(names, self._average, strict=True)}
        return Classifier(self._schema, self._settings(), tensors)

    @property
    def mechanism(self) -> GradientSum:
        """Of every step of clipped gradients."""
        if not isinstance(self._mechanism, GradientSum):
            raise TypeError("noisy directions have no clipped gradients")
        return self._mechanism

    def iterate(self) -> NDArray[np.float32]:
        """(weights,) copy of all weights after the steps made so far: released, before averaging."""
        return np.concatenate([weight.detach().cpu().numpy().ravel() for weight in self._weights()])

    def _continue_from(self, account: Account) -> None:
        """Take up the state that stands in the place of the first sums."""
        latest = account.latest()
        if latest is not None:
            self._first_step, state = latest
            restore_descent(state, self._weights(), self._average, self._optimizer)
            if self._kept is not None:
                self._kept.restore(account.iterates(), self._first_step)

    def _follow_gradient(self, step: int, account: Account, noise: NoiseSource) -> None:
        contribution, seen = choose_question(self.gradients, self._parameters)
        released = self._records.release(self._mechanism, contribution, seen, step=step, account=account, noise=noise)
        self._set_learning_rate(step)
        self._apply_gradient(released / self._divisor)

    def _release_histogram(self, step: int, account: Account, noise: NoiseSource) -> None:
        if self._kept is None or not isinstance(self._histogram, IndividualHistogram):
            raise TypeError("only a run that keeps its iterates has individual epsilons")
        looking = Looking(self.gradients, self.mechanism, self._histogram, self._kept.stacked())
        self._noisy_histogram = self._records.release(
            self._histogram, individual_epsilons, looking, step=step, account=account, noise=noise
        )

    def _individual_figures(self) -> IndividualFigures | None:
        if self._noisy_histogram is None or not isinstance(self._histogram, IndividualHistogram):
            return None
        return IndividualFigures.from_counts(self._histogram, self._noisy_histogram)

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
        """That of a step: a function of public numbers."""
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
