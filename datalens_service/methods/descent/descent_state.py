"""Where a descent along released gradients stands: weights, their average, and the moments of the optimizer.

All of it is a function of released sums, so it may be kept in the place of these sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

State = dict[str, NDArray[Any]]


def descent_state(weights: list[torch.Tensor], average: list[torch.Tensor], optimizer: torch.optim.Optimizer) -> State:
    """Copies of everything that the next step needs."""
    state = {f"weight.{number}": copy_array(weight) for number, weight in enumerate(weights)}
    state |= {f"average.{number}": copy_array(value) for number, value in enumerate(average)}
    for number, moments in optimizer.state_dict()["state"].items():
        state |= {f"moment.{number}.{name}": copy_array(value) for name, value in moments.items() if value is not None}
    return state


def restore_descent(
    state: State, weights: list[torch.Tensor], average: list[torch.Tensor], optimizer: torch.optim.Optimizer
) -> None:
    """Continue from what `descent_state` gave."""
    import torch

    with torch.no_grad():
        for name, values in (("weight", weights), ("average", average)):
            for number, value in enumerate(values):
                value.copy_(torch.from_numpy(state[f"{name}.{number}"]))
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for key, array in state.items():
        if key.startswith("moment."):
            _, weight, name = key.split(".", 2)
            moments.setdefault(int(weight), {})[name] = torch.from_numpy(array.copy())
    settings = optimizer.state_dict()
    optimizer.load_state_dict(settings | {"state": moments})


def copy_array(value: torch.Tensor) -> NDArray[Any]:
    """A copy in the memory of the processor."""
    return np.array(value.detach().cpu().numpy())
