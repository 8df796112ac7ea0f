"""Training of a generator network along released directions.

All of it is post-processing of what a mechanism released: it may be repeated, averaged and replayed.
"""

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from datalens_service.base.arrays import Tensors
from datalens_service.base.errors import CheckpointMismatch, InvalidSpec, StateConflict
from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.adam import AdamState, adam_step
from datalens_service.models.generators.networks import ImageNetwork

State = dict[str, NDArray[np.generic]]

# Statistics of exported batch norm layers: enough batches that one more changes nothing visible.
_CALIBRATION_BATCHES = 8
_CALIBRATION_IMAGES = 128


class _Proposal(NamedTuple):
    inputs: Tensor
    labels: Tensor
    images: Tensor


class StudentTrainer:
    """A network, its Adam state, and the running average of its weights.

    Args:
        updates: Adam steps towards the same targets per direction.
        averaging: Decay of the exponential average of the weights that is exported; 0 exports the last ones.
            Early on the decay is smaller, (1 + t) / (10 + t), so that the initial weights are forgotten.
    """

    def __init__(
        self,
        network: ImageNetwork,
        schema: Schema,
        device: str,
        *,
        learning_rate: float = 1e-3,
        updates: int = 1,
        averaging: float = 0.0,
    ) -> None:
        self._network = network.to(device)
        self._schema = schema
        self._device = torch.device(device)
        self._adam_state = AdamState.from_parameters(
            {name: value.detach() for name, value in network.named_parameters()}
        )
        self._learning_rate, self._updates, self._averaging = learning_rate, updates, averaging
        self._average = {name: value.clone() for name, value in self._adam_state.parameters.items()}
        self._directions = 0
        self._proposal: _Proposal | None = None

    def load_initial(self, released: Tensors) -> None:
        """Put released tensors, such as a Gaussian's, into the network before the first direction."""
        self._network.load(released, partial=True)

    def propose(self, seed: int, images: int, *, balanced: bool = False) -> tuple[Tensor, Tensor]:
        """Draw a batch to be voted on, and remember its inputs.

        Args:
            images: Number of images, at least 2.
            balanced: Equal numbers of every class, in class order; else labels uniform over the classes.

        Returns:
            Images float32 (images, d) in [0, 1] and labels int64 (images,), on the device.

        Raises:
            InvalidSpec: Fewer than 2 images, or no multiple of the classes when balanced.
        """
        rng = np.random.default_rng(seed)
        classes = self._labels(images, rng, balanced)
        inputs = torch.from_numpy(self._network.inputs(classes, rng)).to(self._device)
        labels = torch.from_numpy(classes).to(self._device)
        self._network.train()
        with torch.no_grad():
            self._proposal = _Proposal(inputs, labels, self._network(inputs, labels))
        return self._proposal.images.clamp(0.0, 1.0), labels

    def update(self, direction: NDArray[np.float32], step_size: float) -> None:
        """Take Adam steps on Σ_j ‖Ψ(z_j, y_j) − (x_j + γ·u_j)‖², from the proposal before.

        Args:
            direction: u, (images, d): where each image of the proposal should move.
            step_size: γ.

        Raises:
            StateConflict: There is no proposal, or its direction was followed already.
        """
        if self._proposal is None:
            raise StateConflict("Propose images before following a direction.")
        inputs, labels, images = self._proposal
        targets = images + step_size * torch.from_numpy(direction).to(self._device)
        for number in range(self._updates):
            distance = torch.square(self._network(inputs, labels) - targets).sum()
            gradients = torch.autograd.grad(distance, list(self._network.parameters()))
            named = dict(zip(self._adam_state.parameters, gradients, strict=True))
            adam_step(self._adam_state, named, self._directions * self._updates + number, self._learning_rate)
        self._proposal = None
        self._include_in_average()

    def settings(self) -> dict[str, Any]:
        """Return the settings that build the released generator again."""
        return self._network.settings()

    def tensors(self) -> Tensors:
        """Return the tensors of the released generator: averaged weights, and batch statistics that fit them."""
        network = copy.deepcopy(self._network)
        network.load_state_dict(network.state_dict() | self._average)
        _calibrate(network, self._device)
        return network.tensors()

    def state(self) -> State:
        """Return copies of everything the next step needs; a pending proposal is not part of it."""
        copies: State = {name: np.array(value.cpu().numpy()) for name, value in self._live().items()}
        return copies | {"directions": np.array(self._directions, dtype=np.int64)}

    def restore(self, state: State) -> None:
        live = self._live()
        shapes = {name: tuple(value.shape) for name, value in live.items()} | {"directions": ()}
        if shapes != {name: value.shape for name, value in state.items()}:
            raise CheckpointMismatch("The checkpoint holds another generator than this job asks for.")
        for name, value in live.items():
            value.copy_(torch.from_numpy(np.array(state[name])))
        self._directions = int(state["directions"])
        self._proposal = None

    def _live(self) -> dict[str, Tensor]:
        """Return every tensor that training changes, and the network's constants."""
        parts = {
            "network": self._network.state_dict(),
            "average": self._average,
            "first": self._adam_state.first,
            "second": self._adam_state.second,
        }
        return {f"{part}/{name}": value for part, named in parts.items() for name, value in named.items()}

    def _labels(self, images: int, rng: np.random.Generator, balanced: bool) -> Labels:
        classes = self._schema.num_classes
        if images < 2 or (balanced and images % classes):
            raise InvalidSpec(f"Propose at least 2 images, with balanced classes a multiple of {classes}.")
        if balanced:
            return np.repeat(np.arange(classes, dtype=np.int64), images // classes)
        return rng.integers(classes, size=images)

    def _include_in_average(self) -> None:
        self._directions += 1
        decay = min(self._averaging, (1 + self._directions) / (10 + self._directions))
        for name, value in self._adam_state.parameters.items():
            self._average[name].lerp_(value, 1 - decay)


def _calibrate(network: ImageNetwork, device: torch.device) -> None:
    """Replace running statistics by those of the present weights on public inputs, all classes alike."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over the batches
    network.train()
    rng = np.random.default_rng(0)
    labels = np.arange(_CALIBRATION_IMAGES, dtype=np.int64) % network.schema.num_classes
    with torch.no_grad():
        for _ in range(_CALIBRATION_BATCHES):
            network(torch.from_numpy(network.inputs(labels, rng)).to(device), torch.from_numpy(labels).to(device))
