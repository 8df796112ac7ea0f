"""A feature extractor for torch-fidelity that needs no download: the standard CNN, trained on such images.

Its features are the 64 numbers before the last layer, divided by what they measure on the images it learned from: the
kernel of KID knows numbers around 1. It says nothing about other kinds of images, and its figures can be compared
with each other only where the weights are the same.
"""

import hashlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch_fidelity import FeatureExtractorBase, register_feature_extractor

from datalens_service.data.dataset import Split
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.classifiers import LARGEST_SIDE, averaged, standard_network

NAME: Final = "datalens-domain"

_FEATURES, _LOGITS = "features", "logits"
_SCALE: Final = "scale"
_STEPS, _BATCH = 120, 128


class DomainExtractor(FeatureExtractorBase):  # type: ignore[misc]
    """The standard CNN as torch-fidelity wants it."""

    def __init__(
        self, name: str, features_list: list[str], feature_extractor_weights_path: str, **_settings: Any
    ) -> None:
        super().__init__(name, features_list)
        with safe_open(feature_extractor_weights_path, framework="pt") as file:
            *sides, channels, classes = (int(part) for part in file.metadata()["shape"].split(","))
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        self.register_buffer("scale", weights.pop(_SCALE))
        network = standard_network((*(min(side, LARGEST_SIDE) for side in sides), channels), classes)
        network.load_state_dict(weights)
        *body, last = network.children()
        self.body, self.last = torch.nn.Sequential(*body), last

    @staticmethod
    def get_provided_features_list() -> tuple[str, ...]:
        """Its outputs."""
        return _FEATURES, _LOGITS

    @staticmethod
    def get_default_feature_layer_for_metric(metric: str) -> str:
        """Class scores for the score, features for everything that compares."""
        return _LOGITS if metric == "isc" else _FEATURES

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Outputs for uint8 images (n, channels, height, width)."""
        features = self.body(averaged(images.float() / 255))
        outputs = {_FEATURES: features / self.scale, _LOGITS: self.last(features)}
        return tuple(outputs[name] for name in self.features_list)


def train(reference: Split, num_classes: int, path: Path, *, seed: int, device: str) -> str:
    """Train the standard CNN on real images and write its weights; SHA-256 of the file, hexadecimal.

    Args:
        reference: Images and labels that are not compared afterwards.
        path: The file, safetensors; as private as `reference`.
    """
    network = downstream.trained(
        reference.images, reference.labels, num_classes,
        epochs=-(-_STEPS * _BATCH // len(reference)), batch_size=_BATCH, seed=seed, device=device,
    )  # fmt: skip
    weights = {key: value.cpu().contiguous() for key, value in network.state_dict().items()}
    weights[_SCALE] = _root_mean_square(network, reference, device)
    shape = ",".join(map(str, (*reference.images.shape[1:], num_classes)))
    save_file(weights, path, {"shape": shape})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _root_mean_square(network: torch.nn.Module, reference: Split, device: str) -> torch.Tensor:
    """Of the features of the images it learned from; never 0."""
    features: torch.nn.Module = torch.nn.Sequential(*list(network.children())[:-1]).eval()
    with torch.inference_mode():
        pixels = torch.from_numpy(np.ascontiguousarray(reference.images)).to(device)
        parts = [features(downstream.scaled(part)) for part in torch.split(pixels, downstream.BATCH)]
        return torch.cat(parts).square().mean().sqrt().clamp_min(1e-6).cpu()


register_feature_extractor(NAME, DomainExtractor)
