"""A released classifier: a function from images to class probabilities, stored as safetensors with its settings.

It holds released numbers only. Predicting is post-processing: free, however often, on any images.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.arrays import Tensors
from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Images, Schema
from datalens_service.models.released import ReleasedFile, load_model, save_model

KIND = "classifier"
_BATCH = 512


@dataclass(frozen=True)
class Classifier:
    """A released classifier.

    Attributes:
        schema: Public schema of the data set that it learned from.
        settings: JSON-compatible; "architecture" is a key of `architectures.ARCHITECTURES`.
    """

    result: ClassVar[str] = "classifier"
    evaluations: ClassVar[tuple[str, ...]] = ("predictions",)

    schema: Schema
    settings: dict[str, Any]
    tensors: Tensors

    @property
    def kind(self) -> str:
        """Return the kind in the header of its files."""
        return KIND

    def predict(self, images: Images) -> NDArray[np.float32]:
        """Predict class probabilities, float32 (n, classes); rows add up to 1.

        Args:
            images: uint8 (n, height, width, channels), of the schema's size.

        Raises:
            InvalidInput: The images have another size, type or number of channels.
        """
        return self.predict_with_features(images)[1]

    def predict_with_features(self, images: Images) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the input of the last layer, float32 (n, features), and class probabilities (n, classes)."""
        import torch

        schema = self.schema
        if images.dtype != np.uint8 or images.shape[1:] != (schema.height, schema.width, schema.channels):
            size = f"{schema.height}×{schema.width} pixels and {schema.channels} channels"
            raise InvalidInput(f"The classifier takes images of bytes with {size}.")
        network = self._network
        width = network[-1].in_features
        features = [np.zeros((0, width), dtype=np.float32)]
        parts = [np.zeros((0, schema.num_classes), dtype=np.float32)]
        with torch.no_grad():
            batch = getattr(network[0], "images_at_once", _BATCH)
            for start in range(0, len(images), batch):
                pixels = torch.from_numpy(np.array(images[start : start + batch].transpose(0, 3, 1, 2), order="C"))
                features.append(network[:-1](pixels.float() / 255).numpy())
                parts.append(network[-1](torch.from_numpy(features[-1])).softmax(dim=1).numpy())
        return np.concatenate(features), np.concatenate(parts)

    def save(self, path: Path) -> None:
        """Write safetensors with kind, schema and settings in the header."""
        save_model(path, KIND, self.schema, self.settings, self.tensors)

    def save_onnx(self, path: Path) -> None:
        """Write an ONNX graph that takes bytes and gives probabilities."""
        from datalens_service.models.classifiers.onnx_export import export

        path.write_bytes(export(self._network, self.schema))

    def files(self) -> tuple[ReleasedFile, ...]:
        """Return the weights, and a graph that runs without this product."""
        octets = "application/octet-stream"
        return (
            ReleasedFile("classifier.safetensors", octets, self.save),
            ReleasedFile("classifier.onnx", octets, self.save_onnx),
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; no code is executed from the file.

        Raises:
            InvalidInput: The file is not a classifier of this product.
        """
        return cls(*load_model(path, (KIND,), KIND)[1:])

    @cached_property
    def _network(self) -> Any:
        """Build the network with its weights; torch is imported only where one is used."""
        import torch

        from datalens_service.models.classifiers.architectures import build_network

        network = build_network(self.settings, self.schema)
        weights = {name: torch.from_numpy(np.array(value)) for name, value in self.tensors.items()}
        try:
            network.load_state_dict(weights)
        except RuntimeError:
            raise InvalidInput("The classifier's weights do not fit its architecture.") from None
        return network
