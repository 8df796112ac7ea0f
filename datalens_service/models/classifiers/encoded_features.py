"""Features of a public encoder, in a basis that released samples may give, and the classifier on them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray

from datalens_service.base.arrays import Floats32
from datalens_service.base.progress import Tell, be_silent, told_blocks
from datalens_service.data.dataset import Images, Schema
from datalens_service.models.classifiers.architectures import EncodedFeatures, linear_probe
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.encoders import Encoder, ScatteringEncoder
from datalens_service.models.exact_products import exact_products, on_grid

# Few enough that a block of the longest features takes 256 MiB, and many beside what starts a process.
_ROWS: Final = 2048
_LONGEST: Final = 4.0
"""Bound of their length: features are about 1 long, and so is their mean."""
_FLOOR: Final = 0.01
"""Part of the largest variance that is added to all, so that directions that hardly vary are not blown up."""

SMALL_CONSTANT: Final = 0.1
"""Features that were never centred on records tell classes apart without a bias."""


@dataclass(frozen=True)
class FeatureBasis:
    """Features of images, each of its own image alone.

    Attributes:
        network: Released: a public encoder, and a basis that depends on released samples or on public images.
        encoder: Its name and hash.
        constant: Input of the bias beside features of length 1; a large one takes their share of the length that is
            summed.
    """

    network: EncodedFeatures
    encoder: Encoder
    schema: Schema
    constant: float

    @classmethod
    def from_encoder(
        cls,
        encoder: Encoder,
        schema: Schema,
        device: str,
        dimensions: int | None = None,
        file: Path | None = None,
        constant: float = 1.0,
    ) -> Self:
        """Use the features of an encoder as they are, or the first of them until `fit`."""
        network = EncodedFeatures(encoder.load(schema, file), encoder.dimensions(schema), dimensions)
        return cls(network.to(device).eval(), encoder, schema, constant)

    def fit(self, samples: Images, evenness: float, seed: int, tell: Tell = be_silent) -> None:
        """Take the leading directions of samples' features, divided by a power of their variances.

        Args:
            samples: uint8 (n, height, width, channels), released.
            evenness: The power; 0 leaves features as they are, ½ evens variances out.
        """
        network = self.network
        encoded = [network.encoder.encode(samples[rows]) for rows in told_blocks(len(samples), _ROWS, tell)]
        raw = torch.from_numpy(np.concatenate(encoded))
        center = raw.mean(dim=0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _, lengths, directions = torch.svd_lowrank(raw - center, q=network.width, niter=4)
        variances = lengths.square() / len(raw)
        scale = (variances + _FLOOR * variances[0] + torch.finfo(torch.float32).tiny) ** -evenness
        network.center.copy_(center)
        network.basis.copy_(directions * scale)

    def settings(self) -> dict[str, Any]:
        """Return the settings from which `build_network` makes a classifier on these features."""
        dimensions = self.network.width if self.network.has_basis else None
        if dimensions is not None and self.encoder == ScatteringEncoder():
            return {"architecture": "scattering", "dimensions": dimensions}
        encoder = self.encoder.model_dump(mode="json")
        return {"architecture": "linear_probe", "encoder": encoder, "dimensions": dimensions}

    def features(self, images: Images, tell: Tell = be_silent) -> Floats32:
        """Return features (n, dimensions + 1) with a constant, of length 1 together."""
        scale = (1 + self.constant**2) ** 0.5
        extended = np.empty((len(images), self.network.width + 1), dtype=np.float32)
        extended[:, -1] = self.constant / scale
        for rows in told_blocks(len(images), _ROWS, tell):
            features = self._in_basis(images[rows])
            features /= np.maximum(np.sqrt(np.einsum("ij,ij->i", features, features)), 1e-12)[:, None]
            extended[rows, :-1] = features / scale
        return extended

    def _in_basis(self, images: Images) -> NDArray[Any]:
        """Return features (n, dimensions) before they are scaled to length 1."""
        raw = self.network.encoder.encode(images)
        if not self.network.has_basis:
            return raw
        centered = raw - self.network.center.cpu().numpy()
        # A row of a float product depends on where in the batch it stands; an exact one does not.
        return exact_products(on_grid(centered, _LONGEST), self.network.basis.cpu().numpy())


def as_classifier(basis: FeatureBasis, weights: Floats32) -> Classifier:
    """Join features and a linear layer with `weights` (dimensions + 1, classes), whose last row is the bias."""
    network = linear_probe(basis.network, basis.schema)
    scaled = torch.from_numpy(weights / np.float32((1 + basis.constant**2) ** 0.5))
    linear = {"weight": scaled[:-1].T.contiguous(), "bias": scaled[-1] * basis.constant}
    network[1].load_state_dict(linear)
    tensors = {name: value.cpu().numpy().copy() for name, value in network.state_dict().items()}
    return Classifier(basis.schema, basis.settings(), tensors)
