"""How `dp_sgd` descends where a request does not say: from public numbers, by a rule that was fitted on public sets.

The noise of a whole run moves weights by about steps · rate · √d / (n·μ), however many steps there are and however
large their batches, unless batches are so small that their noise is, too. So the rule says how far to go, which grows
with n·μ, then in how many steps, then in which batches.
"""

import math
from importlib.util import find_spec
from typing import Any, Final, Literal

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidSpec
from datalens_service.models.classifiers.sizes import num_weights
from datalens_service.privacy.accounting import mu_for_epsilon

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
"""Of records, over all steps."""


def plan_descent(schema: Schema, epsilon: float, delta: float, named: dict[str, Any]) -> dict[str, Any]:
    """Parameters of `dp_sgd` that are not named.

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
    """Convolutions where the images are large enough."""
    try:
        num_weights("small_cnn", schema)
    except InvalidSpec:
        return "mlp"
    return "small_cnn"


def _batches(num_units: int, steps: int, mu: float) -> dict[str, Any]:
    """The smallest batches that cost nothing in noise: from μ² = T·q²·(e^{1/σ²} − 1) (Bu, Dong, Long and Su 2020).

    Empty where all records are as good.
    """
    share = mu / math.sqrt(steps * math.expm1(1 / _LEAST_NOISE_MULTIPLIER**2))
    batch = max(_SMALLEST_BATCH, math.ceil(share * num_units))
    dear = mu > _LARGEST_SAMPLED_MU or batch > _LARGEST_SAMPLED_SHARE * num_units
    if dear or find_spec("dp_accounting") is None:
        return {}
    return {"sampling": "poisson", "batch": batch}
