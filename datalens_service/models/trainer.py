"""How a student follows released votes; post-processing from beginning to end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.data.dataset import Schema
from datalens_service.models.student import RefinedGaussian, Student

State = dict[str, np.ndarray]


class StudentTrainer:
    """Proposes images and moves the student along the released directions.

    Args:
        student: The network; its buffers and weights are public.
        schema: Of the images.
        device: Where it is trained.
        learning_rate: Adam's; its β₁ is 0.5 as in the original.
        updates: Adam steps per released direction, all towards the same target.
        averaging: Decay of the running average of weights that is handed out; 0 hands out the weights.
    """

    def __init__(
        self,
        student: Student | RefinedGaussian,
        schema: Schema,
        device: str,
        *,
        learning_rate: float,
        updates: int,
        averaging: float,
    ) -> None:
        self._student = student.to(device).train()
        self._schema = schema
        self._device = device
        self._updates = updates
        self._averaging = averaging
        self._optimizer = torch.optim.Adam(self._student.parameters(), learning_rate, betas=(0.5, 0.999))
        self._average = {name: value.clone() for name, value in self._student.state_dict().items()}
        self._latent = torch.empty(0)
        self._labels = torch.empty(0, dtype=torch.int64)

    def begin(self, released: dict[str, NDArray[np.float32]]) -> None:
        """Put released tensors into the student's buffers before the first vote."""
        for name, value in released.items():
            for tensors in (self._student.state_dict(), self._average):
                tensors[name].copy_(torch.from_numpy(value))

    def propose(self, seed: int, images: int, *, balanced: bool) -> tuple[Tensor, Tensor]:
        """Images to vote on, with labels uniform over the declared classes.

        Args:
            seed: Of latent vectors and labels.
            images: B, how many.
            balanced: The same number of every class, in class order, instead of independent draws.

        Returns:
            float32 (B, d) without a graph, and int64 (B,).
        """
        rng = np.random.default_rng(seed)
        classes = self._schema.num_classes
        drawn = np.repeat(np.arange(classes), images // classes) if balanced else rng.integers(classes, size=images)
        self._labels = torch.from_numpy(drawn.astype(np.int64)).to(self._device)
        self._latent = self._student.latent(images, rng).to(self._device)
        with torch.no_grad():
            return self._student(self._latent, self._labels), self._labels

    def update(self, direction: NDArray[np.float32], step_size: float) -> None:
        """Adam on Σ_j ‖Ψ(z_j, y_j) − (x_j + γ·u_j)‖² for the images proposed last.

        Args:
            direction: u, (B, d).
            step_size: γ.
        """
        with torch.no_grad():
            proposed = self._student(self._latent, self._labels)
        target = proposed + step_size * torch.from_numpy(direction).to(self._device)
        for _ in range(self._updates):
            self._optimizer.zero_grad()
            (self._student(self._latent, self._labels) - target).square().sum().backward()
            self._optimizer.step()
        self._follow()

    def settings(self) -> dict[str, Any]:
        """What builds the network again."""
        return self._student.settings()

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Weights and buffers that are handed out, float32."""
        floats = {name: value for name, value in self._average.items() if value.is_floating_point()}
        return {name: value.cpu().numpy().copy() for name, value in floats.items()}

    def state(self) -> State:
        """Weights, average and optimiser state, to go on from."""
        arrays = {f"weights/{name}": value for name, value in self._student.state_dict().items()}
        arrays |= {f"average/{name}": value for name, value in self._average.items()}
        for index, slots in self._optimizer.state_dict()["state"].items():
            arrays |= {f"adam/{index}/{name}": value for name, value in slots.items()}
        return {name: value.detach().cpu().numpy().copy() for name, value in arrays.items()}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        parts: dict[str, dict[str, Tensor]] = {"weights": {}, "average": {}, "adam": {}}
        for name, value in state.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = torch.from_numpy(value).to(self._device)
        self._student.load_state_dict(parts["weights"])
        self._average = parts["average"]
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in parts["adam"].items():
            index, _, slot = name.partition("/")
            slots.setdefault(int(index), {})[slot] = tensor
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": slots})

    def _follow(self) -> None:
        for name, value in self._student.state_dict().items():
            if value.is_floating_point():
                self._average[name].mul_(self._averaging).add_(value, alpha=1 - self._averaging)
