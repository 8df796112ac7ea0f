"""Iterates of a released descent, kept for everybody who wants to know what their own record lost.

They are released values, θ₀ … θ_{T−1}: the weights before each step, before averaging. The file holds everything else
that individual ε needs, so that it is computed without the data set, the service or the job.

The position of a descent (weights, their average and the moments of the optimizer) is a function of released sums, so
it may be kept in the place of these sums.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from datalens_service.base.errors import InvalidInput, InvalidSpec, LedgerCorrupt

if TYPE_CHECKING:
    import torch


ITERATES_FILE: Final = "iterates.safetensors"
MOST_BYTES: Final = 2**28
"""Largest size of all iterates of a job; they pass through one row of the database per fifty steps, and through memory.
"""

_FORMAT: Final = "datalens-iterates/1"
_TENSOR: Final = "iterates"
_HEADER: Final = "description"
_MEBIBYTE: Final = 2**20

Iterates = NDArray[np.float32]


class KeptIterates:
    """The iterates that a run keeps."""

    def __init__(self) -> None:
        self._rows: list[Iterates] = []
        self._taken = 0

    def append(self, weights: Iterates) -> None:
        """Keep one more row (weights,)."""
        self._rows.append(weights)

    def restore(self, blocks: Sequence[Iterates], count: int) -> None:
        """Continue with blocks that `take_new` returned before.

        Raises:
            LedgerCorrupt: The number of iterates is not `count`.
        """
        self._rows = [row for block in blocks for row in block]
        self._taken = len(self._rows)
        if self._taken != count:
            raise LedgerCorrupt("Stored iterates are missing; the job cannot go on.")

    def take_new(self) -> Iterates:
        """Return the iterates since the last call, (steps, weights)."""
        new = self._rows[self._taken :]
        self._taken = len(self._rows)
        return np.stack(new)

    def stacked(self) -> Iterates:
        """Return all iterates, (steps, weights)."""
        return np.stack(self._rows)


def bytes_of_iterates(count: int, dimensions: int) -> int:
    """Return the size of so many iterates of so many weights."""
    return count * dimensions * np.dtype(np.float32).itemsize


def check_room(size: int) -> None:
    """Refuse iterates that take more bytes than a job may keep."""
    if size > MOST_BYTES:
        raise InvalidSpec(
            f"The iterates of the job would take {size / _MEBIBYTE:,.0f} MiB, and at most {MOST_BYTES // _MEBIBYTE} "
            "MiB are kept: lower ⟦method.steps⟧, choose a smaller ⟦method.architecture⟧, or ⟦method.accounting⟧ "
            "uniform."
        )


def write_iterates(path: Path, *, values: Iterates, description: dict[str, Any]) -> None:
    """Write iterates as safetensors.

    Args:
        values: (steps, weights).
        description: Public; JSON.
    """
    header = json.dumps({"format": _FORMAT, **description}, sort_keys=True)
    save_file({_TENSOR: np.ascontiguousarray(values)}, path, {_HEADER: header})


def read_iterates(path: Path) -> tuple[Iterates, dict[str, Any]]:
    """Read values and description as they were written; no code is run from the file.

    Raises:
        InvalidInput: It is another file.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            description: dict[str, Any] = json.loads((file.metadata() or {})[_HEADER])
            values: Iterates = file.get_tensor(_TENSOR)
    except (SafetensorError, KeyError, ValueError) as error:
        raise InvalidInput("The file holds no iterates that this product has written.") from error
    if description.pop("format", None) != _FORMAT or values.ndim != 2 or values.dtype != np.float32:
        raise InvalidInput("The file holds no iterates of a format that this version reads.")
    return values, description


State = dict[str, NDArray[Any]]


def descent_state(weights: list[torch.Tensor], average: list[torch.Tensor], optimizer: torch.optim.Optimizer) -> State:
    """Copy everything that the next step needs."""
    state = {f"weight.{number}": copy_array(weight) for number, weight in enumerate(weights)}
    state |= {f"average.{number}": copy_array(value) for number, value in enumerate(average)}
    for number, moments in optimizer.state_dict()["state"].items():
        state |= {f"moment.{number}.{name}": copy_array(value) for name, value in moments.items() if value is not None}
    return state


def restore_descent(
    state: State, weights: list[torch.Tensor], average: list[torch.Tensor], optimizer: torch.optim.Optimizer
) -> None:
    """Continue from a state of `descent_state`."""
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
    """Copy a tensor into main memory."""
    return np.array(value.detach().cpu().numpy())
