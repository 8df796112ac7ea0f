"""Generators of other packages, found by their entry points: public functions that make images of a class.

    [project.entry-points."datalens.generators"]
    shapes = "my_package.shapes:Shapes"

`Shapes(schema)` has the two calls of `ImageGenerator`. It sees labels and released images, and no private record.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from datalens_service.base.errors import InvalidSpec, WorkerUnavailable
from datalens_service.base.plugins import GENERATORS, find_origin, load_plugin
from datalens_service.data.dataset import Images, Schema
from datalens_service.models.public_source import PublicGenerator


class ImageGenerator(Protocol):
    """The interface of a package's generator; images are uint8 (n, height, width, channels) of its schema."""

    def random(self, count: int, label: int, seed: int) -> Images:
        """Return images of a class, the same for the same seed."""

    def variations(self, images: Images, label: int, seed: int) -> Images:
        """Return one image like each of the given ones, the same for the same seed."""


def find_installed(name: str) -> PublicGenerator:
    """Return a generator and its package; neither is imported.

    Raises:
        InvalidSpec: No package brought one of this name.
    """
    origin = find_origin(name, GENERATORS)
    if origin is None:
        raise InvalidSpec(f"No installed package has a generator {name!r}. Whoever runs the service installs them.")
    return PublicGenerator(name=name, **origin.model_dump())


class InstalledGenerator:
    """A generator whose answers are checked.

    Args:
        name: Name of the entry point.
        schema: Public schema of the images to make.
    """

    def __init__(self, name: str, schema: Schema) -> None:
        self._name, self._schema = name, schema
        self._made: ImageGenerator = load_plugin(name, GENERATORS)(schema)

    def random(self, count: int, label: int, seed: int) -> Images:
        return self._checked(self._made.random(count, label, seed), count)

    def variations(self, images: Images, label: int, seed: int) -> Images:
        return self._checked(self._made.variations(images.copy(), label, seed), len(images))

    def _checked(self, images: Images, count: int) -> Images:
        shape = (count, self._schema.height, self._schema.width, self._schema.channels)
        made = np.asarray(images)
        if made.dtype != np.uint8 or made.shape != shape:
            raise WorkerUnavailable(
                f"The generator {self._name} owes uint8 images of shape {shape} and gave {made.dtype} of {made.shape}."
            )
        return made
