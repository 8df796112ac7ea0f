"""Features of images by a stranger's ONNX graph, which is read and run in a confined process alone."""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from datalens_service.base.errors import InvalidInput, WorkerUnavailable
from datalens_service.data.dataset import Images
from datalens_service.data.intake.sandbox import sandbox
from datalens_service.data.intake.sandbox.encode import FEATURES_FILE, GRAPH_FILE, LABEL_FILE, EncodeRequest
from datalens_service.data.intake.sandbox.encoder_label import EncoderLabel
from datalens_service.data.intake.sandbox.exchange import OUT_OF_MEMORY

MOST_BYTES: Final = 2**27
IMAGES_AT_ONCE: Final = 1024
_PROGRAM: Final = "datalens_service.data.intake.sandbox.encode"
_NEEDED: Final = ("onnx", "onnxruntime")
_MISSING: Final = (
    "An encoder of one's own needs onnxruntime where it is uploaded and where jobs run: "
    "pip install 'datalens-service[onnx]'."
)
_MEMORY_BYTES: Final = 2**32
_SECONDS: Final = 600
_LIMITS: Final = (sandbox.BROKEN, sandbox.TOO_SLOW, OUT_OF_MEMORY)


def encode(graph: bytes, images: Images) -> NDArray[np.float32]:
    """Compute features float32 (n, d) of length 1, each row a function of its own image.

    Raises:
        InvalidInput: The file is not an encoder that is taken, or takes too much time or memory.
        WorkerUnavailable: onnxruntime is not installed.
    """
    blocks = [images[row : row + IMAGES_AT_ONCE] for row in range(0, len(images), IMAGES_AT_ONCE)]
    return np.concatenate([_encode(graph, np.ascontiguousarray(block)) for block in blocks])


def export(graph: bytes, channels: int) -> bytes:
    """Return the graph from bytes of one image to its features, as `encode` runs it, without a declared output.

    Raises:
        InvalidInput: The file is not an encoder that is taken, or takes too much time or memory.
        WorkerUnavailable: onnxruntime is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(graph, np.zeros((0, 1, 1, channels), dtype=np.uint8), Path(folder))
        return (Path(folder) / GRAPH_FILE).read_bytes()


def read_label(graph: bytes) -> EncoderLabel:
    """Return what the file says of itself.

    Raises:
        InvalidInput: The file is not an encoder that is taken, or takes too much time or memory.
        WorkerUnavailable: onnxruntime is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(graph, np.zeros((0, 1, 1, 1), dtype=np.uint8), Path(folder))
        try:
            # The process may have been taken over, so its result is checked.
            return EncoderLabel.model_validate_json((Path(folder) / LABEL_FILE).read_bytes())
        except ValidationError:
            return EncoderLabel()


def _encode(graph: bytes, images: Images) -> NDArray[np.float32]:
    with tempfile.TemporaryDirectory() as folder:
        _run(graph, images, Path(folder))
        features: NDArray[np.float32] = np.load(Path(folder) / FEATURES_FILE, allow_pickle=False)
    # The process may have been taken over, so its result is checked.
    if features.dtype != np.float32 or features.ndim != 2 or len(features) != len(images):
        raise InvalidInput("The encoder gives no features.")
    return np.nan_to_num(features, posinf=0, neginf=0)


def _run(graph: bytes, images: Images, folder: Path) -> None:
    if not all(map(find_spec, _NEEDED)):
        raise WorkerUnavailable(_MISSING)
    if len(graph) > MOST_BYTES:
        raise InvalidInput(f"The encoder is larger than {MOST_BYTES // 2**20} MiB.")
    request = EncodeRequest(
        folder=folder, memory_bytes=_MEMORY_BYTES, cpu_seconds=_SECONDS, graph_bytes=len(graph), shape=images.shape
    )
    try:
        sandbox.run_confined(request, _SECONDS, _PROGRAM, graph + images.tobytes())
    except sandbox.Refused as error:
        limited = "The encoder breaks what runs it, or takes too much time or memory: export a smaller one."
        raise InvalidInput(limited if error.text in _LIMITS else error.text) from None
