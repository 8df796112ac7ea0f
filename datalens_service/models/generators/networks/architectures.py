"""The architectures of network generators: built from the settings in a file's header, and drawn from."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Labels, Schema
from datalens_service.errors import InvalidInput
from datalens_service.models.generators.networks.class_networks import ClassNetworks
from datalens_service.models.generators.networks.deconv import HIDDEN, MAPS, DeconvGenerator
from datalens_service.models.generators.networks.image_network import ImageNetwork, Tensors
from datalens_service.models.generators.networks.refiner import RefinedGaussian


def build_network(settings: dict[str, Any], schema: Schema, seed: int = 0) -> ImageNetwork:
    """The network that `settings` describe, with initial weights from `seed`.

    Raises:
        InvalidInput: The settings name no architecture of this product.
    """
    match settings:
        case {"architecture": "student", "z_dim": int(z_dim)}:
            return DeconvGenerator(schema, z_dim, settings.get("hidden", HIDDEN), settings.get("maps", MAPS), seed)
        case {"architecture": "refined", "rank": int(rank), "width": int(width)}:
            return RefinedGaussian(schema, rank, width, seed)
        case {
            "architecture": "class_networks",
            "z_dim": int(z_dim),
            "frequencies": int(frequencies),
            "hidden": int(hidden),
        }:
            return ClassNetworks(schema, z_dim, frequencies, hidden, seed)
    raise InvalidInput("The generator's settings name no architecture of this product.")


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Images (n, d) in [0, 1] of a released network."""
    released = build_network(settings, schema)
    released.load(tensors)
    return released.draw(labels, rng)
