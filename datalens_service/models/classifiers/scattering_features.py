"""Scattering features in a basis that released samples give, and the classifier that they and weights make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Schema
from datalens_service.models.classifiers.architectures import ScatteringFeatures, scattering_network
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.exact_products import exact_products, on_grid

Floats = NDArray[np.float32]

_RECORDS: Final = 256
_ROWS: Final = 8192
_LONGEST: Final = 4.0
"""Features are about 1 long, and so is their mean."""
_FLOOR: Final = 0.01
"""Part of the largest variance that is added to all, so that directions that hardly vary are not blown up."""


@dataclass(frozen=True)
class FeatureBasis:
    """Features of images, each of its own image alone.

    Attributes:
        network: Released: fixed filters, and a basis that depends on released samples.
    """

    network: ScatteringFeatures
    schema: Schema

    @classmethod
    def fit(
        cls, schema: Schema, samples: Images, dimensions: int, evenness: float, seed: int, device: str
    ) -> FeatureBasis:
        """The leading directions of samples' features, divided by a power of their variances.

        Args:
            samples: uint8 (n, height, width, channels), released.
            evenness: The power; 0 leaves features as they are, ½ evens variances out.
        """
        network = ScatteringFeatures(schema, dimensions).to(device).eval()
        basis = cls(network, schema)
        raw = basis._raw(samples)
        center = raw.mean(dim=0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _, lengths, directions = torch.svd_lowrank(raw - center, q=dimensions, niter=4)
        variances = lengths.square() / len(raw)
        scale = (variances + _FLOOR * variances[0] + torch.finfo(torch.float32).tiny) ** -evenness
        network.center.copy_(center)
        network.basis.copy_(directions * scale)
        return basis

    def features(self, images: Images) -> Floats:
        """(n, dimensions + 1) features with a constant 1, of length 1 together.

        Images are always as many at once: kernels are chosen by the size of a batch.
        """
        blocks = []
        for start in range(0, len(images), _ROWS):
            centered = (self._raw(images[start : start + _ROWS]) - self.network.center.cpu()).numpy()
            # A row of a float product depends on where in the batch it stands; an exact one does not.
            blocks.append(exact_products(on_grid(centered, _LONGEST), self.network.basis.cpu().numpy()))
        features = np.concatenate(blocks)
        features /= np.maximum(np.sqrt(np.einsum("ij,ij->i", features, features)), 1e-12)[:, None]
        extended = np.concatenate([features, np.ones((len(features), 1))], axis=1) / 2**0.5
        return np.asarray(extended, dtype=np.float32)

    @torch.no_grad()
    def _raw(self, images: Images) -> torch.Tensor:
        device = self.network.center.device
        blocks = []
        for start in range(0, len(images), _RECORDS):
            block = images[start : start + _RECORDS]
            padded = np.pad(block, ((0, _RECORDS - len(block)), (0, 0), (0, 0), (0, 0)))
            pixels = torch.from_numpy(np.ascontiguousarray(padded.transpose(0, 3, 1, 2))).to(device, torch.float32)
            blocks.append(self.network.raw(pixels / 255)[: len(block)].cpu())
        return torch.cat(blocks)


def as_classifier(basis: FeatureBasis, weights: Floats) -> Classifier:
    """Features and a linear layer as one network.

    Args:
        weights: (dimensions + 1, classes); the last row is the bias.
    """
    dimensions = basis.network.basis.shape[1]
    network = scattering_network(basis.schema, dimensions)
    network[0].load_state_dict(basis.network.state_dict())
    scaled = torch.from_numpy(weights / np.float32(2**0.5))
    linear = {"weight": scaled[:-1].T.contiguous(), "bias": scaled[-1].contiguous()}
    network[1].load_state_dict(linear)
    tensors = {name: value.cpu().numpy().copy() for name, value in network.state_dict().items()}
    return Classifier(basis.schema, {"architecture": "scattering", "dimensions": dimensions}, tensors)
