"""The released artefact: a function from labels to images, stored as safetensors with its settings.

A generator holds released numbers only. Drawing from it is post-processing: free, and repeatable by seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.errors import InvalidInput
from datalens_service.models.generators import gaussian, mixture
from datalens_service.models.released import ReleasedFile

Tensors = dict[str, NDArray[np.float32]]
Draw = Callable[[Tensors, dict[str, Any], Schema, Labels, np.random.Generator], NDArray[np.float32]]

_BATCH = 2048


def _draw_network(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Images of a network generator; torch is imported only where one is used."""
    from datalens_service.models.generators import architectures

    return architectures.draw(tensors, settings, schema, labels, rng)


def _draw_guided(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Samples with the labels of a classifier; torch is imported only where one is used."""
    from datalens_service.models.generators import guided

    return guided.draw(tensors, settings, schema, labels, rng)


def _draw_shapes(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Images with sharp outlines; SciPy and torch are imported only where they are used."""
    from datalens_service.models.generators import shapes

    return shapes.draw(tensors, settings, schema, labels, rng)


KINDS: dict[str, Draw] = {
    "gaussian": gaussian.draw,
    "mixture": mixture.draw,
    "network": _draw_network,
    "guided": _draw_guided,
    "shapes": _draw_shapes,
}


@dataclass(frozen=True)
class Generator:
    """A released generator.

    Attributes:
        kind: Key of `KINDS`.
        schema: Public schema of the data set it imitates.
        settings: JSON-compatible architecture settings.
        tensors: Its numbers, float32.
    """

    result: ClassVar[str] = "generator"
    evaluations: ClassVar[tuple[str, ...]] = ("images",)

    kind: str
    schema: Schema
    settings: dict[str, Any]
    tensors: Tensors

    def sample(self, n: int, *, labels: Labels | None = None, seed: int = 0) -> tuple[Images, Labels]:
        """Draw synthetic images.

        Args:
            n: How many, at least 1.
            labels: (n,) wanted classes; by default every class in turn, never the private frequencies.
            seed: Repeats the draw.

        Returns:
            uint8 images (n, height, width, channels) and int64 labels (n,).
        """
        if labels is None:
            labels = np.arange(n, dtype=np.int64) % self.schema.num_classes
        if n < 1 or len(labels) != n or labels.min() < 0 or labels.max() >= self.schema.num_classes:
            raise InvalidInput("Ask for at least one image and give one declared class for each.")
        shape = (-1, self.schema.channels, self.schema.height, self.schema.width)
        parts = []
        for start in range(0, n, _BATCH):
            # One stream per batch: the first images do not depend on how many follow.
            rng = np.random.default_rng([seed, start])
            pixels = KINDS[self.kind](
                self.tensors, self.settings, self.schema, labels[start : start + _BATCH], rng
            ).reshape(shape)
            parts.append(np.rint(pixels.clip(0, 1) * 255).astype(np.uint8).transpose(0, 2, 3, 1))
        return np.concatenate(parts), labels

    def save(self, path: Path) -> None:
        """Write safetensors with kind, schema and settings in the header."""
        metadata = {"kind": self.kind, "schema": self.schema.model_dump_json(), "settings": json.dumps(self.settings)}
        save_file({name: np.ascontiguousarray(value) for name, value in self.tensors.items()}, path, metadata)

    def files(self) -> tuple[ReleasedFile, ...]:
        """The generator itself."""
        return (ReleasedFile("generator.safetensors", "application/octet-stream", self.save),)

    @classmethod
    def load(cls, path: Path) -> Generator:
        """Read what `save` wrote; no code is executed from the file."""
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("kind") not in KINDS:
                raise InvalidInput(f"{path.name} is not a generator of this product.")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        schema = Schema.model_validate_json(metadata["schema"])
        return cls(metadata["kind"], schema, json.loads(metadata["settings"]), tensors)
