"""Weights of the ImageNet Inception that torch-fidelity compares with: from the operator's path, or downloaded once.

The file is a pickle of tensors. It is used only if its digest begins as the published one does and torch can read it
without running code; torch-fidelity, which would run code, gets to see no other.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

import httpx2
import torch
from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3

from datalens_service.errors import WorkerUnavailable

NAME: Final = "inception-v3-compat"

# The publisher names the file by the beginning of its SHA-256.
_DIGEST_START: Final = URL_INCEPTION_V3.rsplit("-", 1)[1].removesuffix(".pth")
_TIMEOUT_SECONDS: Final = 20


def weights(configured: Path | None) -> tuple[Path, str]:
    """Path and SHA-256 of the weights.

    Raises:
        WorkerUnavailable: No weights, or not the published ones.
    """
    path = configured or Path(torch.hub.get_dir(), "checkpoints", URL_INCEPTION_V3.rsplit("/", 1)[1])
    if not path.exists():
        if configured is not None:
            raise WorkerUnavailable("⟦DATALENS_INCEPTION_WEIGHTS⟧ names a file that does not exist on this worker.")
        _download(path)
    return path, _checked(path)


def _download(path: Path) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with httpx2.stream("GET", URL_INCEPTION_V3, follow_redirects=True, timeout=_TIMEOUT_SECONDS) as answer:
            answer.raise_for_status()
            with partial.open("wb") as file:
                for piece in answer.iter_bytes():
                    file.write(piece)
        partial.replace(path)
    except (httpx2.HTTPError, OSError) as error:
        partial.unlink(missing_ok=True)
        raise WorkerUnavailable(
            "The weights of ImageNet Inception are not on this worker and could not be downloaded. Put the file of "
            "torch-fidelity's release v0.2.0 on its disk and name it in ⟦DATALENS_INCEPTION_WEIGHTS⟧, or use the "
            "domain extractor."
        ) from error


def _checked(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if not digest.startswith(_DIGEST_START):
        raise WorkerUnavailable(
            f"The weights of ImageNet Inception on this worker are not the published ones: SHA-256 {digest[:8]}…, "
            f"not {_DIGEST_START}…."
        )
    torch.load(path, map_location="cpu", weights_only=True)
    return digest
