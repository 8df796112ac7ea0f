"""An encoder of the owner's own: an ONNX file, declared public, which a confined process runs image by image."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

import numpy as np
from pydantic import Field

from datalens_service.base.errors import InvalidInput, InvalidSpec, WorkerUnavailable
from datalens_service.base.fields import Integer
from datalens_service.data.dataset import Schema
from datalens_service.data.intake.sandbox import encoder
from datalens_service.data.intake.sandbox.encode import MOST_FEATURES
from datalens_service.data.intake.sandbox.encoder_label import EncoderLabel
from datalens_service.models.encoders.base import Encoder
from datalens_service.models.public_source import PublicEncoder

if TYPE_CHECKING:
    from datalens_service.models.encoders.network import OnnxNetwork

ONNX: Final = "onnx"
_CHANNELS: Final = (1, 3)
_PROBES: Final = (3, 16, 16, 3)


class OnnxEncoder(Encoder, EncoderLabel):
    """The file by its hash, and its number of features; only its owner knows what it was trained on."""

    name: Literal["onnx"] = ONNX
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file.")
    features: Integer = Field(
        ge=1, le=MOST_FEATURES, description="Number of features of one image, as the upload found."
    )

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Try a file in a confined process.

        Raises:
            InvalidInput: It is not an encoder that is taken.
            WorkerUnavailable: onnxruntime is not installed.
        """
        probes = np.random.default_rng(0).integers(0, 256, _PROBES, dtype=np.uint8)
        probes[-1] = probes[0]
        features = encoder.encode(content, probes)
        if not features.any() or not np.array_equal(features[0], features[-1]):
            raise InvalidInput("The encoder does not give the same features for the same image, or none at all.")
        stated = encoder.read_label(content).model_dump()
        return cls(sha256=hashlib.sha256(content).hexdigest(), features=features.shape[1], **stated)

    def check(self, schema: Schema) -> None:
        if schema.channels not in _CHANNELS:
            raise InvalidSpec(f"An encoder of one's own takes grey or RGB images, not {schema.channels} channels.")

    def dimensions(self, schema: Schema) -> int:
        return self.features

    def source(self) -> PublicEncoder:
        stated = {name: getattr(self, name) for name in EncoderLabel.model_fields}
        return PublicEncoder(name=self.name, sha256=self.sha256, **stated)

    def architecture(self, schema: Schema) -> OnnxNetwork:
        from datalens_service.models.encoders.network import OnnxNetwork

        return OnnxNetwork(schema.channels, self.features)

    def load(self, schema: Schema, file: Path | None = None) -> OnnxNetwork:
        content = b"" if file is None else file.read_bytes()
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise WorkerUnavailable("The file of the encoder is not here, or not the one that the spec names.")
        return self.architecture(schema).with_graph(content)
