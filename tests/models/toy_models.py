"""Released models of kinds that the product does not have: each is one class here and nothing elsewhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Schema
from datalens_service.models.released import ReleasedFile


@dataclass(frozen=True)
class MeanImage:
    """Nothing but one released image."""

    result: ClassVar[str] = "mean-image"
    evaluations: ClassVar[tuple[str, ...]] = ()

    schema: Schema

    def save(self, path: Path) -> None:
        path.write_bytes(b"mean")

    def files(self) -> tuple[ReleasedFile, ...]:
        text = ReleasedFile("mean.txt", "text/plain", lambda path: path.write_text("127") and None)
        return (ReleasedFile("mean.bin", "application/octet-stream", self.save), text)


@dataclass(frozen=True)
class Brightness:
    """A classifier of two classes: bright, then dark. Sees less than half of what it is shown."""

    result: ClassVar[str] = "classifier"
    evaluations: ClassVar[tuple[str, ...]] = ("predictions",)

    schema: Schema

    def predict(self, images: Images) -> NDArray[np.float32]:
        share = images.reshape(len(images), -1).mean(axis=1) / 255
        columns = [share, 1 - share, *[np.zeros_like(share)] * (self.schema.num_classes - 2)]
        return np.stack(columns, axis=1).astype(np.float32)

    def save(self, path: Path) -> None:
        path.write_bytes(b"weights")

    def files(self) -> tuple[ReleasedFile, ...]:
        return (
            ReleasedFile("classifier.safetensors", "application/octet-stream", self.save),
            ReleasedFile("classifier.onnx", "application/octet-stream", self.save),
        )
