"""Encoders that somebody brings along: ONNX files, declared public, which jobs name by their SHA-256."""

from pathlib import Path
from typing import Final

from datalens_service.base.errors import InvalidInput
from datalens_service.data.intake.sandbox.encoder import MOST_BYTES
from datalens_service.methods.base import Method
from datalens_service.models.encoders.onnx_file import ONNX, OnnxEncoder
from datalens_service.store.datasets.artifacts import ArtifactStore

_NAME: Final = "encoder.onnx"


def read(path: Path) -> OnnxEncoder:
    """Read the encoder in a file, once a confined process has tried it.

    Raises:
        InvalidInput: It cannot be read, or is not an encoder that is taken.
        WorkerUnavailable: onnxruntime is not installed.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidInput(f"The encoder is larger than {MOST_BYTES // 2**20} MiB.")
        return OnnxEncoder.read(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"The encoder cannot be read: {error.strerror}.") from None


def keep(artifacts: ArtifactStore, path: Path) -> OnnxEncoder:
    """Read a file and store it; repeatable.

    Raises:
        InvalidInput: It is not an encoder that is taken.
        WorkerUnavailable: onnxruntime is not installed.
    """
    encoder = read(path)
    artifacts.keep_public(_NAME, path.read_bytes())
    return encoder


def find(artifacts: ArtifactStore, method: Method) -> Path | None:
    """The file of the encoder that a method names; None if it names none of this kind.

    Raises:
        NotFound: It was not uploaded.
        StoreUnavailable: The store does not answer.
    """
    source = method.public_inputs().encoder
    if source is None or source.name != ONNX:
        return None
    return artifacts.public(_NAME, source.sha256)
