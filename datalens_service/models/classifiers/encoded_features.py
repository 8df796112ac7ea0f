"""Features of a public encoder, in a basis that released samples may give, and the classifier on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
_FLOOR_OF_VIEWS: Final = 0.03
"""The same of variances among views of a picture; chosen, with the next, on training images of CIFAR-10 set aside."""
_SPANNED: Final = 1000
"""Directions of pictures, in which views are compared."""
_TINY: Final = torch.finfo(torch.float32).tiny

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
        variances, directions = _span(raw - center, network.width, seed)
        scale = (variances + _FLOOR * variances[0] + _TINY) ** -evenness
        network.center.copy_(center)
        network.basis.copy_(directions * scale)

    def fit_apart(self, views: Sequence[Images], evenness: float, seed: int, tell: Tell = be_silent) -> None:
        """Take the directions that tell pictures apart in any view: a linear discriminant with a class for each.

        Args:
            views: Public: the same pictures several times, uint8 (n, height, width, channels) each.
            evenness: As for `fit`; variances are those between pictures, where views of one vary by 1.
        """
        network, images = self.network, np.concatenate(views)
        raw = torch.empty(len(images), len(network.center))
        for rows in told_blocks(len(images), _ROWS, tell):
            raw[rows] = torch.from_numpy(network.encoder.encode(images[rows]))
        center = raw.mean(dim=0)
        raw -= center
        means = raw.reshape(len(views), -1, raw.shape[1]).mean(dim=0)
        _, spanned = _span(means, min(max(_SPANNED, network.width), *means.shape), seed)
        raw, means = raw @ spanned, means @ spanned
        moved = raw - means.repeat(len(views), 1)
        spread, rotation = _leading(moved.T @ moved / (len(raw) - len(means)), raw.shape[1])
        steady = rotation * (spread + _FLOOR_OF_VIEWS * spread[0] + _TINY) ** -0.5
        apart = means @ steady
        variances, directions = _leading(apart.T @ apart / len(means), network.width)
        scale = (variances + _FLOOR * variances[0] + _TINY) ** -evenness
        network.center.copy_(center)
        network.basis.copy_(spanned @ (steady @ (directions * scale)))

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


def _span(centered: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the largest variances of rows, and their directions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _, lengths, directions = torch.svd_lowrank(centered, q=count, niter=4)
    return lengths.square() / len(centered), directions


def _leading(symmetric: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalues of a matrix, none below 0, and their vectors."""
    values, vectors = torch.linalg.eigh(symmetric)
    return values.flip(0)[:count].clamp_min(0), vectors.flip(1)[:, :count]


def as_classifier(basis: FeatureBasis, weights: Floats32) -> Classifier:
    """Join features and a linear layer with `weights` (dimensions + 1, classes), whose last row is the bias."""
    network = linear_probe(basis.network, basis.schema)
    scaled = torch.from_numpy(weights / np.float32((1 + basis.constant**2) ** 0.5))
    linear = {"weight": scaled[:-1].T.contiguous(), "bias": scaled[-1] * basis.constant}
    network[1].load_state_dict(linear)
    tensors = {name: value.cpu().numpy().copy() for name, value in network.state_dict().items()}
    return Classifier(basis.schema, basis.settings(), tensors)
