"""What every network generator is: inputs drawn by NumPy, a torch module from inputs and labels to images."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Labels, Schema
from datalens_service.errors import InvalidInput

Tensors = dict[str, NDArray[np.float32]]

# Batch norm counts its batches; nothing that is sampled depends on the count.
_COUNTER = "num_batches_tracked"


class ImageNetwork(nn.Module, ABC):
    """A generator network. It sees released numbers only."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.schema = schema

    @abstractmethod
    def inputs(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.float32]:
        """(n, …) random inputs for labels (n,); the same on every device."""

    @abstractmethod
    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """float32 (n, d) images before they are clipped to [0, 1], differentiable."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """JSON-compatible numbers from which the network is built again."""

    def one_hot(self, labels: Tensor) -> Tensor:
        """(n,) → float32 (n, classes)."""
        return functional.one_hot(labels, self.schema.num_classes).to(torch.float32)

    def tensors(self) -> Tensors:
        """Weights and released constants, as copies."""
        state = {name: value for name, value in self.state_dict().items() if not name.endswith(_COUNTER)}
        return {name: np.array(value.cpu().numpy(), dtype=np.float32) for name, value in state.items()}

    def load(self, tensors: Tensors, *, partial: bool = False) -> None:
        """Take over what `tensors` returned.

        Args:
            partial: Leave those that are not named as they are.

        Raises:
            InvalidInput: Names or shapes are those of another network.
        """
        state = self.state_dict()
        expected = {name: tuple(value.shape) for name, value in state.items() if not name.endswith(_COUNTER)}
        if partial:
            expected = {name: shape for name, shape in expected.items() if name in tensors}
        if expected != {name: value.shape for name, value in tensors.items()}:
            raise InvalidInput("The generator's tensors do not fit its settings.")
        for name, value in tensors.items():
            state[name].copy_(torch.from_numpy(np.array(value)))

    def draw(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.float32]:
        """float32 (n, d) images in [0, 1]; an image depends on its own input and label only."""
        self.eval()
        with torch.no_grad():
            images = self(torch.from_numpy(self.inputs(labels, rng)), torch.from_numpy(labels))
        return np.asarray(images.clamp(0.0, 1.0).numpy())
