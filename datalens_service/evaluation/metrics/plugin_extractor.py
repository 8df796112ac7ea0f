"""Feature extractors of other packages, as torch-fidelity wants them.

A plug-in is a function from uint8 images (n, height, width, channels) to float features (n, dimensions). It has no
class scores, so there is no inception score under it.
"""

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch_fidelity import FeatureExtractorBase, register_feature_extractor

from datalens_service.data.dataset import Images
from datalens_service.errors import WorkerUnavailable
from datalens_service.plugins import EXTRACTORS, find_origin, load_plugin

Extract = Callable[[Images], NDArray[np.floating[Any]]]

_FEATURES: Final = "features"


def register(kind: str) -> tuple[str, str]:
    """Make a plug-in known to torch-fidelity.

    Returns:
        Name under which torch-fidelity has it, with package and version, and SHA-256 of its module.
    """
    extract, origin = load_plugin(kind, EXTRACTORS), find_origin(kind, EXTRACTORS)
    name = f"{kind} of {origin}"

    class PluginExtractor(FeatureExtractorBase):  # type: ignore[misc]
        def __init__(self, name: str, features_list: list[str], **_settings: Any) -> None:
            super().__init__(name, features_list)

        @staticmethod
        def get_provided_features_list() -> tuple[str, ...]:
            return (_FEATURES,)

        @staticmethod
        def get_default_feature_layer_for_metric(metric: str) -> str:
            return _FEATURES

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (extracted(extract, kind, images),)

    register_feature_extractor(name, PluginExtractor)
    return name, hashlib.sha256(Path(inspect.getfile(extract)).read_bytes()).hexdigest()


def extracted(extract: Extract, kind: str, images: torch.Tensor) -> torch.Tensor:
    """Features of images as torch-fidelity hands them over.

    Raises:
        WorkerUnavailable: The plug-in breaks its contract.
    """
    pixels = np.ascontiguousarray(images.cpu().numpy().transpose(0, 2, 3, 1))
    features = np.asarray(extract(pixels))
    if features.ndim != 2 or len(features) != len(pixels) or not np.isfinite(features).all():
        raise WorkerUnavailable(f"The extractor {kind} gives no finite features (n, dimensions) for these images.")
    return torch.from_numpy(features.astype(np.float32)).to(images.device)
