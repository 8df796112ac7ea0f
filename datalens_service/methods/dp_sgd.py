"""DP-SGD: a classifier by noisy clipped gradients of a whole network.

Abadi et al. 2016, "Deep Learning with Differential Privacy", Algorithm 1, on all records in every step. A step is one
`GradientSum`; its noise is exact, and the account is that of Gaussian releases. Batches drawn by Poisson sampling are
refused until the ledger can charge them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from datalens_service.data.dataset import Dataset, Schema
from datalens_service.errors import InfeasiblePlan
from datalens_service.mechanisms import Account, GradientChunk, GradientSum
from datalens_service.mechanisms.gradient_sum import unit_means
from datalens_service.methods.base import ExecutionOptions, Method, Plan, PlannedRelease
from datalens_service.methods.record_sums import StatelessRun, calibrated
from datalens_service.models.classifiers.sizes import num_weights
from datalens_service.privacy.accounting import MINIMUM_NOISE_STDDEV
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from datalens_service.strict import Integer, Number

if TYPE_CHECKING:
    import torch

    from datalens_service.models.classifiers.classifier import Classifier

_WEAKEST_SIGNAL: Final = 0.2
"""Length of the largest possible sum of gradients over that of its noise, below which weights follow noise."""


class DpSgd(Method):
    """Parameters of noisy gradient descent on all weights of a network."""

    result: ClassVar[str] = "classifier"

    name: Literal["dp_sgd"] = "dp_sgd"
    architecture: Literal["small_cnn", "lenet", "mlp", "linear"] = "small_cnn"
    steps: Integer = Field(default=60, ge=1, le=10_000, description="Gradients, each over all records.")
    sampling: Literal["none"] = Field(default="none", description="none: every step takes all records.")
    clip_norm: Number = Field(default=1.0, gt=0, le=1000, description="Largest L2 norm of a unit's gradient; public.")
    noise_multiplier: Number | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="σ of the noise over clip_norm; left out, the smallest with which `steps` fit into ε.",
    )
    compression: Literal["none", "topk", "normtopk"] = Field(
        default="none",
        description="- `none`\n- `topk`: the largest coordinates of a gradient, a share `keep` of all\n"
        "- `normtopk`: the largest coordinates that hold at most a share `keep` of its squared norm",
    )
    keep: Number = Field(default=1.0, gt=0, le=1, description="Of topk and normtopk.")
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: Number = Field(default=0.5, gt=0, le=1000)
    momentum: Number = Field(default=0.9, ge=0, lt=1, description="Of sgd; adam has its own.")
    averaging: Number = Field(default=0.9, ge=0, lt=1, description="Decay of the average of weights.")

    @field_validator("sampling", mode="before")
    @classmethod
    def _all_records(cls, value: object) -> object:
        if value == "poisson":
            raise ValueError(
                "Poisson sampling cannot be charged yet. Leave sampling out: every step takes all records."
            )
        return value

    @model_validator(mode="after")
    def _keep_belongs_to_a_compression(self) -> DpSgd:
        if self.compression == "none" and self.keep != 1:
            raise ValueError("keep belongs to a compression: choose topk or normtopk, or leave keep out.")
        return self

    def plan(self, schema: Schema, units: int) -> Plan:
        """As many gradients as were asked for and fit.

        Raises:
            InfeasiblePlan: ε does not pay for one step, or the noise would be larger than the sampler can draw.
            InvalidSpec: The images are too small for the architecture.
        """
        mechanism = GradientSum(
            dimensions=num_weights(self.architecture, schema),
            clip_norm=self.longest_row,
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        if self.noise_multiplier is None:
            release = calibrated(mechanism, units / self.steps)
            return Plan(releases=(release.model_copy(update={"count": self.steps}),))
        return Plan(releases=(self._as_noisy_as_named(mechanism, units),))

    @property
    def longest_row(self) -> float:
        """Largest L2 norm of what a unit contributes: √keep · clip_norm with `normtopk` (DataLens, appendix A)."""
        return self.clip_norm * math.sqrt(self.keep) if self.compression == "normtopk" else self.clip_norm

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        """Whether noise drowns the gradient, from public numbers."""
        mechanism = plan.releases[0].mechanism
        if not isinstance(mechanism, GradientSum):
            return ()
        ratio = schema.num_units * mechanism.radius / (mechanism.noise_stddev * math.sqrt(mechanism.dimensions))
        if ratio >= _WEAKEST_SIGNAL:
            return ()
        return (
            f"The noise of a step is {1 / ratio:.0f} times as long as the sum of gradients can be. The classifier will "
            "learn little: raise epsilon, lower steps, or choose the method scattering.",
        )

    def create_run(
        self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> DpSgdRun:
        """A run of the releases of `plan`."""
        return DpSgdRun(self, plan, dataset, randomness, options)

    def _as_noisy_as_named(self, mechanism: GradientSum, units: int) -> PlannedRelease:
        stddev = max(MINIMUM_NOISE_STDDEV, math.ceil((self.noise_multiplier or 0) * mechanism.radius))
        if stddev > MAXIMUM_NOISE_STDDEV:
            raise InfeasiblePlan("noise_multiplier is larger than the sampler can draw.")
        noisy = mechanism.model_copy(update={"noise_stddev": stddev})
        affordable = units // noisy.cost()
        if affordable == 0:
            raise InfeasiblePlan("epsilon does not pay for one step: raise epsilon or noise_multiplier.")
        return PlannedRelease(mechanism=noisy, count=min(self.steps, affordable))


class DpSgdRun(StatelessRun):
    """Descent in which every gradient is released; weights are post-processing and can leave at any step."""

    def __init__(
        self, parameters: DpSgd, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> None:
        from datalens_service.models.classifiers.architectures import build_network

        self._parameters = parameters
        self._dataset = dataset
        release = plan.releases[0]
        if not isinstance(release.mechanism, GradientSum):
            raise TypeError("a plan of dp_sgd consists of gradients")
        self._mechanism, self._count = release.mechanism, release.count
        self._device = options.device
        seed = randomness.seed("classifier")
        self._network = build_network(self._settings(), dataset.schema, seed).to(options.device)
        self._optimizer = self._make_optimizer()
        self._average = [weight.detach().clone() for weight in self._network.parameters()]

    @property
    def steps(self) -> int:
        """One for each gradient."""
        return self._count

    def may_stop_before(self, step: int) -> bool:
        """Weights exist after the first step."""
        return step > 0

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """One noisy gradient over all records, and a step of the optimizer along it."""
        released = self._mechanism.release(self._gradients, step=step, account=account, noise=noise)
        self._apply_gradient(released / self._dataset.schema.num_units)

    def result(self) -> Classifier:
        """The network with the average of its weights so far."""
        from datalens_service.models.classifiers.classifier import Classifier

        names = [name for name, _ in self._network.named_parameters()]
        tensors = {name: value.cpu().numpy().copy() for name, value in zip(names, self._average, strict=True)}
        return Classifier(self._dataset.schema, self._settings(), tensors)

    def _settings(self) -> dict[str, Any]:
        return {"architecture": self._parameters.architecture}

    def _gradients(self) -> Iterator[GradientChunk]:
        """Private: the gradient of every record, units side by side."""
        import torch
        from torch.nn import functional

        from datalens_service.models.per_record import BytesToNumbers, PerRecordGradients

        def loss(logits: torch.Tensor, _image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(logits, label)

        train = self._dataset.train
        order = np.argsort(train.unit_ids, kind="stable")
        images = torch.from_numpy(np.ascontiguousarray(train.images[order].transpose(0, 3, 1, 2)))
        labels = torch.from_numpy(train.labels[order])
        gradients = PerRecordGradients(torch.nn.Sequential(BytesToNumbers(), self._network), loss)
        rows = gradients.chunks([images.to(self._device), labels.to(self._device)])
        chunks = whole_units(rows, torch.from_numpy(train.unit_ids[order]).to(self._device))
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


def whole_units(rows: Iterable[torch.Tensor], units: torch.Tensor) -> Iterator[GradientChunk]:
    """Chunks that split no unit.

    Args:
        rows: (records, dimensions) gradients, one chunk after another.
        units: (all records,) ascending identities of their units.
    """
    import torch

    start, held = 0, None
    for chunk in rows:
        joined = chunk if held is None else torch.cat([held, chunk])
        identities = units[start : start + len(joined)]
        # What follows may belong to the last unit, too.
        complete = int((identities != identities[-1]).sum())
        yield GradientChunk(joined[:complete], identities[:complete])
        start, held = start + complete, joined[complete:]
    if held is not None:
        yield GradientChunk(held, units[start:])
