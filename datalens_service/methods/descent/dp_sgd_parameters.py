"""Parameters of noisy gradient descent on all weights of a network, and the bound of a unit's gradient."""

import math
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Integer, Number
from datalens_service.base.wording import speak
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientSum, VonMisesFisherSum
from datalens_service.methods.base import Method
from datalens_service.methods.facts import SMALL_NETWORKS, Facts
from datalens_service.models.classifiers.sizes import num_weights
from datalens_service.privacy.accounting import MINIMUM_NOISE_STDDEV, mu_for_epsilon

_TOGETHER: Final = (
    "⟦method.noise⟧ von_mises_fisher and ⟦method.sampling⟧ partition belong together: choose both, or neither."
)
_DIRECTIONS_ALONE: Final = (
    "⟦method.noise⟧ von_mises_fisher takes directions alone: leave out ⟦method.compression⟧, ⟦method.clip_norm⟧, "
    "⟦method.noise_multiplier⟧ and ⟦method.accounting⟧, or choose gaussian."
)
_WHOLE_GRADIENTS: Final = (
    "⟦method.accounting⟧ per_instance needs whole gradients, because which coordinates a compression keeps may turn on "
    "rounding: leave out ⟦method.compression⟧, or choose uniform."
)


def _is_constant(schedule: str) -> bool:
    """Leave the default out, so that jobs from before there was a schedule keep their digest."""
    return schedule == "constant"


class DpSgdParameters(Method):
    """Parameters of noisy gradient descent on all weights of a network."""

    facts = Facts(
        title="DP-SGD", summary="noisy gradients of a classifier",
        result="classifier", public_images="start", levels=None, memory=SMALL_NETWORKS,
        measured_as="scattering", image_seconds=0.0,
    )  # fmt: skip

    name: Literal["dp_sgd"] = "dp_sgd"
    architecture: Literal["small_cnn", "lenet", "lenet_relu", "mlp", "linear"] = "small_cnn"
    steps: Integer = Field(
        default=60,
        ge=1,
        le=10_000,
        description="Gradients. What a request leaves out of `architecture`, `steps`, `sampling`, `batch` and "
        "`learning_rate` is planned from n, ε and the size of images.",
    )
    sampling: Literal["none", "poisson", "partition"] = Field(
        default="none",
        description="- `none`: every step takes all records\n"
        "- `poisson`: every unit enters every batch by its own secret coin; the run is charged before the first\n"
        "- `partition`: every unit is in one batch of a pass; with noise von_mises_fisher",
    )
    batch: Integer | None = Field(
        default=None,
        ge=1,
        description="Units in a batch: expected with poisson, exact with partition. Left out, a hundredth of all.",
    )
    noise: Literal["gaussian", "von_mises_fisher"] = Field(
        default="gaussian",
        description="- `gaussian`: on the sum of clipped gradients\n"
        "- `von_mises_fisher`: on the direction of every unit's gradient by itself; needs far more budget, see "
        "docs/mechanisms/von_mises_fisher.md",
    )
    kappa: Number | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Concentration of von_mises_fisher noise; left out, the largest with which `steps` fit into ε.",
    )
    slack: Number = Field(default=0.05, gt=0, le=0.5, description="Part of δ that poisson sampling charges beside μ².")
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
        "- `normtopk`: of each tensor of weights, the largest coordinates that hold at most a share `keep` of its "
        "squared norm",
    )
    keep: Number = Field(default=1.0, gt=0, le=1, description="Share that topk and normtopk keep.")
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: Number = Field(default=0.5, gt=0, le=1000)
    momentum: Number = Field(default=0.9, ge=0, lt=1, description="Momentum of sgd; adam has its own.")
    learning_rate_schedule: Literal["constant", "linear"] = Field(
        default="constant",
        exclude_if=_is_constant,
        description="- `constant`\n- `linear`: the learning rate rises over the first sixth of the steps and falls to "
        "nothing over the others",
    )
    averaging: Number = Field(default=0.9, ge=0, lt=1, description="Decay of the average of weights.")
    accounting: Literal["uniform", "per_instance"] = Field(
        default="uniform",
        description="- `uniform`: every unit is said to lose the ε of the job\n"
        "- `per_instance`: the job keeps its released iterates, from which whoever holds a record learns its realised "
        "individual ε",
    )
    histogram_noise: Integer | None = Field(
        default=None,
        ge=MINIMUM_NOISE_STDDEV,
        le=10**9,
        description="Of per_instance: σ of the noise on numbers of units by individual ε, which the job then releases "
        "and charges within ε; left out, it does not.",
    )
    histogram_every: Integer | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Of histogram_noise: gradients of all units are computed again at every so many iterates; left "
        "out, at all of them without sampling, and twice per pass with.",
    )

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        refusal = next(self._refusals(), None)
        if refusal is not None:
            raise ValueError(speak(refusal))
        return self

    def _refusals(self) -> Iterator[str]:
        """Yield a refusal for each pair of settings that do not go together."""
        directional, compressed = self.noise == "von_mises_fisher", self.compression != "none"
        if self.sampling == "none" and self.batch is not None:
            yield "⟦method.batch⟧ belongs to ⟦method.sampling⟧: choose poisson, or leave it out."
        if directional != (self.sampling == "partition"):
            yield _TOGETHER
        if self.kappa is not None and not directional:
            yield "⟦method.kappa⟧ belongs to ⟦method.noise⟧ von_mises_fisher: choose that, or leave it out."
        clipped = compressed or self.noise_multiplier is not None or self.clip_norm != 1
        if directional and (clipped or self.accounting != "uniform"):
            yield _DIRECTIONS_ALONE
        if not compressed and self.keep != 1:
            yield "⟦method.keep⟧ belongs to ⟦method.compression⟧: choose topk or normtopk, or leave it out."
        if self.histogram_noise is not None and self.accounting == "uniform":
            yield "⟦method.histogram_noise⟧ belongs to ⟦method.accounting⟧ per_instance: choose that."
        if self.histogram_every is not None and self.histogram_noise is None:
            yield "⟦method.histogram_every⟧ belongs to ⟦method.histogram_noise⟧: name both, or neither."
        if self.accounting == "per_instance" and compressed:
            yield _WHOLE_GRADIENTS

    def refusal_of_public_data(self) -> str:
        if self.accounting == "uniform":
            return ""
        return "⟦method.accounting⟧ per_instance needs first weights that follow from the seed alone: choose uniform."

    @property
    def longest_row(self) -> float:
        """Return the largest L2 norm of a unit's row: √keep · clip_norm with `normtopk` (DataLens, appendix A)."""
        return self.clip_norm * math.sqrt(self.keep) if self.compression == "normtopk" else self.clip_norm


def summed_units(mechanism: GradientSum | VonMisesFisherSum, num_units: int) -> float:
    """Return the public divisor of a sum: all units, or q·n for a batch of any size."""
    block = mechanism.block()
    return num_units if block is None else block.batch


# Fitted on MNIST's training images: 60,000 records at ε from 0.05 to 1, and 2,000 at ε = 1.
_DISTANCE_PER_EVIDENCE: Final = 0.008
_SHORTEST_DISTANCE, _MOST_IN_NOISE = 10.0, 1 / 40
_FEWEST_STEPS, _MOST_STEPS = 60, 500
_LARGEST_RATE: Final = 0.25
_SMALLEST_BATCH: Final = 1024
# With less noise, the account charges a block more than it costs.
_LEAST_NOISE_MULTIPLIER: Final = 0.8
# A batch fits into the quarter of the records that each model of an audit learns from.
_LARGEST_SAMPLED_SHARE: Final = 0.25
# Above, the price of a block takes minutes.
_LARGEST_SAMPLED_MU: Final = 3.0
_MOST_GRADIENTS: Final = 2**20
"""Largest number of gradients of records, over all steps."""


def plan_descent(schema: Schema, epsilon: float, delta: float, named: dict[str, Any]) -> dict[str, Any]:
    """Choose parameters of `dp_sgd` that are not named, from public numbers, by a rule that was fitted on public sets.

    The noise of a whole run moves weights by about steps · rate · √d / (n·μ), however many steps there are and however
    large their batches, unless batches are so small that their noise is, too. So the rule says how far to go, which
    grows with n·μ, then in how many steps, then in which batches.

    Returns:
        `architecture`, `steps`, `learning_rate`, and `sampling` and `batch` unless one of both is named.
    """
    mu = mu_for_epsilon(epsilon, delta)
    evidence = schema.num_units * mu
    distance = max(_DISTANCE_PER_EVIDENCE * evidence, min(_SHORTEST_DISTANCE, _MOST_IN_NOISE * evidence))
    wanted = distance / named.get("learning_rate", _LARGEST_RATE)
    steps = named.get("steps") or round(min(max(wanted, _FEWEST_STEPS), _MOST_STEPS))
    batches = {} if {"sampling", "batch"} & named.keys() else _batches(schema.num_units, steps, mu)
    if not batches:
        steps = named.get("steps") or min(steps, max(_FEWEST_STEPS, _MOST_GRADIENTS // schema.num_units))
    rate = float(f"{min(distance / steps, _LARGEST_RATE):.2g}")
    planned = {"architecture": choose_architecture(schema), "steps": steps, "learning_rate": rate, **batches}
    return {name: value for name, value in planned.items() if name not in named}


def choose_architecture(schema: Schema) -> Literal["small_cnn", "mlp"]:
    """Choose convolutions where the images are large enough."""
    try:
        num_weights("small_cnn", schema)
    except InvalidSpec:
        return "mlp"
    return "small_cnn"


def _batches(num_units: int, steps: int, mu: float) -> dict[str, Any]:
    """Choose the smallest batches that cost nothing in noise: μ² = T·q²·(e^{1/σ²} − 1) (Bu, Dong, Long and Su 2020).

    The result is empty where batches of all records are as good.
    """
    share = mu / math.sqrt(steps * math.expm1(1 / _LEAST_NOISE_MULTIPLIER**2))
    batch = max(_SMALLEST_BATCH, math.ceil(share * num_units))
    dear = mu > _LARGEST_SAMPLED_MU or batch > _LARGEST_SAMPLED_SHARE * num_units
    if dear or find_spec("dp_accounting") is None:
        return {}
    return {"sampling": "poisson", "batch": batch}
