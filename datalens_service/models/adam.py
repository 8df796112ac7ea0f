"""Adam (Kingma & Ba 2015) on named tensors whose moments the caller keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import torch
from torch import Tensor

# The function behind torch.optim.Adam. The class would load torch's compiler, seconds at the start of each job.
from torch.optim.adam import adam

_BETA1, _BETA2 = 0.5, 0.999
_EPSILON: Final = 1e-8


class AdamState(NamedTuple):
    """Parameters with their first and second moments, under the same names."""

    parameters: dict[str, Tensor]
    first: dict[str, Tensor]
    second: dict[str, Tensor]

    @classmethod
    def from_parameters(cls, parameters: dict[str, Tensor]) -> AdamState:
        """Return moments of 0 beside `parameters`, which are kept, not copied."""
        zeros = [{name: torch.zeros_like(value) for name, value in parameters.items()} for _ in range(2)]
        return cls(parameters, *zeros)

    @classmethod
    def zeros(cls, shapes: Mapping[str, tuple[int, ...]], make: Callable[[tuple[int, ...]], Tensor]) -> AdamState:
        """Make parameters and moments of 0, each tensor by `make`, parameters first."""
        return cls(*({name: make(shape) for name, shape in shapes.items()} for _ in cls._fields))

    def arrays(self) -> dict[str, Tensor]:
        """Return all tensors by part and name."""
        return {f"{part}/{name}": value for part, named in self._asdict().items() for name, value in named.items()}

    def block(self, rows: slice) -> AdamState:
        """Return views of some rows of every tensor."""
        return AdamState(*({name: value[rows] for name, value in part.items()} for part in self))


def adam_step(adam_state: AdamState, gradients: dict[str, Tensor], steps: int, learning_rate: float) -> None:
    """Take one step in place; elementwise, so entries of a tensor never meet."""
    adam(
        [adam_state.parameters[name] for name in gradients],
        # The fused kernel reads memory in order and takes no strides into account.
        [value.contiguous() for value in gradients.values()],
        [adam_state.first[name] for name in gradients],
        [adam_state.second[name] for name in gradients],
        [],
        [torch.full((), float(steps), device=value.device) for value in gradients.values()],
        fused=True,
        amsgrad=False,
        beta1=_BETA1,
        beta2=_BETA2,
        lr=learning_rate,
        weight_decay=0.0,
        eps=_EPSILON,
        maximize=False,
    )
