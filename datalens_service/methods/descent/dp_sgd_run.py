"""A run of DP-SGD: noisy gradients one after the other, and what is released beside the classifier."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import (
    Account,
    GradientChunk,
    GradientSum,
    IndividualHistogram,
    VonMisesFisherSum,
)
from datalens_service.mechanisms.gradient_sum import unit_means
from datalens_service.mechanisms.individual_histogram import IndividualEpsilons, IndividualFigures
from datalens_service.methods.base import ExecutionOptions, Extras, Plan
from datalens_service.methods.descent.descent_state import descent_state, restore_descent
from datalens_service.methods.descent.dp_sgd_parameters import DpSgdParameters
from datalens_service.methods.descent.individual_norms import epsilons_of_units
from datalens_service.methods.descent.iterates import ITERATES_FILE, KeptIterates, write_iterates
from datalens_service.methods.descent.ordered_records import OrderedRecords, check_positions, whole_units
from datalens_service.methods.public_start import PublicImages
from datalens_service.methods.sums.record_sums import StatelessRun
from datalens_service.models.released import ReleasedFile
from datalens_service.privacy.randomness import Booleans, Integers, NoiseSource, TrainingRandomness

if TYPE_CHECKING:
    import torch

    from datalens_service.models.classifiers.classifier import Classifier

PRIVATE_READS = ("training",)

_STEPS_PER_STATE: Final = 50
"""Of a run in batches: so many sums are kept until the state takes their place."""

_WARMUP_SHARE: Final = 1 / 6
"""Of the steps, over which a linear schedule rises."""


class DpSgdRun(StatelessRun):
    """Descent in which every gradient is released; weights are post-processing and can leave at any step."""

    def __init__(
        self,
        parameters: DpSgdParameters,
        plan: Plan,
        dataset: Dataset,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
        records_at_once: int | None = None,
    ) -> None:
        from datalens_service.models.classifiers.architectures import build_network

        self._parameters = parameters
        self._dataset = dataset
        release = plan.releases[0]
        if not isinstance(release.mechanism, GradientSum | VonMisesFisherSum):
            raise TypeError("a plan of dp_sgd consists of gradients")
        self._mechanism, self._count = release.mechanism, release.count
        check_positions(release.mechanism, dataset)
        self._plan, self._records_at_once = plan, records_at_once
        self._histogram = next((one.mechanism for one in plan.releases[1:]), None)
        self._kept = KeptIterates() if parameters.accounting == "per_instance" else None
        self._noisy_histogram: Integers | None = None
        self._device = options.device
        self._records = OrderedRecords(dataset, options.device)
        self._divisor = summed_units(release.mechanism, dataset.schema.num_units)
        self._seed = seed = randomness.seed("classifier")
        self._network = build_network(self._settings(), dataset.schema, seed).to(options.device)
        self._optimizer = self._make_optimizer()
        self._average = [weight.detach().clone() for weight in self._network.parameters()]
        self._first_step = 0

    def start_from(self, public: PublicImages) -> None:
        """Replace the first weights by those that the network learns from public images; before any step.

        Raises:
            InvalidSpec: The images have another size.
        """
        from datalens_service.methods.public_start import start_from_public

        network = self._network.cpu()
        start_from_public(network, self._settings(), self._dataset.schema, public, self._seed)
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
        weights = self._flat_weights()
        released = self._mechanism.release(self._gradients, step=step, account=account, noise=noise)
        self._set_learning_rate(step)
        self._apply_gradient(released / self._divisor)
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
            "schema": self._dataset.schema.model_dump(mode="json"),
            "method": self._parameters.model_dump(mode="json"),
            "plan": self._plan.model_dump(mode="json"),
            "epsilon": epsilon,
            "delta": delta,
        }
        write = partial(write_iterates, values=self._kept.stacked(), description=description)
        return Extras((ReleasedFile(ITERATES_FILE, "application/octet-stream", write),), self._individual_figures())

    def result(self) -> Classifier:
        """The network with the average of its weights so far."""
        from datalens_service.models.classifiers.classifier import Classifier

        names = [name for name, _ in self._network.named_parameters()]
        tensors = {name: value.cpu().numpy().copy() for name, value in zip(names, self._average, strict=True)}
        return Classifier(self._dataset.schema, self._settings(), tensors)

    @property
    def mechanism(self) -> GradientSum:
        """Of every step of clipped gradients."""
        if not isinstance(self._mechanism, GradientSum):
            raise TypeError("noisy directions have no clipped gradients")
        return self._mechanism

    def iterate(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the weights after the steps made so far, by name: released, before averaging."""
        return {name: weight.detach().cpu().numpy().copy() for name, weight in self._network.named_parameters()}

    def set_weights(self, iterate: Mapping[str, NDArray[np.float32]]) -> None:
        """Compute what follows at other weights."""
        import torch

        with torch.no_grad():
            for name, weight in self._network.named_parameters():
                weight.copy_(torch.from_numpy(iterate[name]))

    def named(self, weights: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """An iterate by name, from all weights (dimensions,) in one row."""
        parameters = dict(self._network.named_parameters())
        ends = np.cumsum([weight.numel() for weight in parameters.values()])
        parts = np.split(weights, ends[:-1])
        return {
            name: part.reshape(tuple(weight.shape))
            for (name, weight), part in zip(parameters.items(), parts, strict=True)
        }

    def contributions(self) -> Iterator[GradientChunk]:
        """Private: gradients of all units at the weights as they are."""
        return self._gradients()

    def loss(self, logits: torch.Tensor, _image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Of one record."""
        from torch.nn import functional

        return functional.cross_entropy(logits, label)

    def _continue_from(self, account: Account) -> None:
        """Take up the state that stands in the place of the first sums."""
        latest = account.latest()
        if latest is not None:
            self._first_step, state = latest
            restore_descent(state, self._weights(), self._average, self._optimizer)
            if self._kept is not None:
                self._kept.restore(account.iterates(), self._first_step)

    def _release_histogram(self, step: int, account: Account, noise: NoiseSource) -> None:
        if not isinstance(self._histogram, IndividualHistogram):
            raise TypeError("a plan of dp_sgd consists of gradients and at most one histogram")
        self._noisy_histogram = self._histogram.release(
            self._individual_epsilons, step=step, account=account, noise=noise
        )

    def _individual_epsilons(self) -> IndividualEpsilons:
        """Private: what each unit lost, by its gradients at iterates that were released before."""
        if self._kept is None or not isinstance(self._histogram, IndividualHistogram):
            raise TypeError("only a run that keeps its iterates has individual epsilons")
        last, iterates = self.iterate(), self._kept.stacked()
        chosen = map(self.named, iterates[:: self._histogram.every])
        epsilons = epsilons_of_units(self, chosen, len(iterates), self._histogram)
        self.set_weights(last)
        return IndividualEpsilons(epsilons, np.unique(self._dataset.train.unit_ids))

    def _individual_figures(self) -> IndividualFigures | None:
        if self._noisy_histogram is None or not isinstance(self._histogram, IndividualHistogram):
            return None
        return IndividualFigures.from_counts(self._histogram, self._noisy_histogram)

    def _flat_weights(self) -> NDArray[np.float32]:
        return np.concatenate([values.ravel() for values in self.iterate().values()])

    def _weights(self) -> list[torch.Tensor]:
        return list(self._network.parameters())

    def _settings(self) -> dict[str, Any]:
        return {"architecture": self._parameters.architecture}

    def _gradients(self, coins: Booleans | None = None) -> Iterator[GradientChunk]:
        """Private: the gradient of every record whose unit is in the batch, units side by side."""
        import torch

        from datalens_service.models.per_record import BytesToNumbers, PerRecordGradients

        records = self._records.all() if coins is None else self._records.sampled(coins)
        network = torch.nn.Sequential(BytesToNumbers(), self._network)
        gradients = PerRecordGradients(network, self.loss, self._records_at_once)
        chunks = whole_units(gradients.chunks([records.images, records.labels]), records.units)
        return chunks if self._parameters.compression == "none" else map(self._compressed, chunks)

    def _compressed(self, chunk: GradientChunk) -> GradientChunk:
        """Private: one row per unit, the mean of its records, of which the largest coordinates stay."""
        import torch

        from datalens_service.models.compression import keep_energy, keep_largest

        parameters = self._parameters
        # One precision for all: else the size of one unit would decide how rows of others are rounded.
        means = unit_means(chunk).to(torch.float32)
        if parameters.compression == "topk":
            kept = keep_largest(means, max(1, math.floor(parameters.keep * means.shape[1])))
        else:
            norms = means.norm(dim=1, keepdim=True)
            kept = keep_energy(means * (parameters.clip_norm / norms.clamp(min=parameters.clip_norm)), parameters.keep)
        return GradientChunk(kept, torch.unique_consecutive(chunk.units))

    def _make_optimizer(self) -> torch.optim.Optimizer:
        import torch

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
        import torch

        weights = list(self._network.parameters())
        whole = torch.from_numpy(gradient).to(self._device, torch.float32)
        parts = torch.split(whole, [weight.numel() for weight in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.view_as(weight).clone()
        self._optimizer.step()
        with torch.no_grad():
            for average, weight in zip(self._average, weights, strict=True):
                average.lerp_(weight, 1 - self._parameters.averaging)


def summed_units(mechanism: GradientSum | VonMisesFisherSum, num_units: int) -> float:
    """Public divisor of a sum: all units, or q·n of those in a batch, however many they are."""
    block = mechanism.block()
    return num_units if block is None else block.batch
