"""Installed generators, found by their entry points or folders: public functions that make images of a class.

    [project.entry-points."datalens.generators"]
    shapes = "my_package.shapes:Shapes"

`Shapes(schema)` has the two calls of `ImageGenerator`. It sees labels and released images, and no private record.
Those of this product stand among the entry points of its own package. Pipelines of diffusers are folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np

from datalens_service.base.errors import InvalidSpec, WorkerUnavailable
from datalens_service.base.plugins import GENERATORS, find_origin, list_plugins, load_plugin
from datalens_service.data.dataset import Images, Schema
from datalens_service.models.generators import diffusers_folder
from datalens_service.models.public_source import PublicGenerator

_OURS: Final = "datalens-service"
_COLOURED: Final = (1, 3)


class ImageGenerator(Protocol):
    """The interface of a package's generator; images are uint8 (n, height, width, channels) of its schema."""

    def random(self, count: int, label: int, seed: int) -> Images:
        """Return images of a class, the same for the same seed."""

    def variations(self, images: Images, label: int, seed: int) -> Images:
        """Return one image like each of the given ones, the same for the same seed."""


class InstalledName(NamedTuple):
    """A generator that requests may name: its package or folder, which nobody has opened."""

    name: str
    package: str
    place: str


def list_installed() -> Iterator[InstalledName]:
    """List generators by name, those of packages first."""
    for entry in list_plugins(GENERATORS):
        yield InstalledName(entry.name, str(find_origin(entry.name, GENERATORS)), entry.value)
    for name, folder in diffusers_folder.list_folders().items():
        yield InstalledName(name, diffusers_folder.PREFIX.rstrip("."), str(folder))


def find_installed(name: str) -> PublicGenerator:
    """Return a generator and its package; neither is imported.

    Raises:
        InvalidSpec: There is none of this name, or its folder or package is not taken.
    """
    if name.startswith(diffusers_folder.PREFIX):
        return diffusers_folder.describe_pipeline(name)
    origin = find_origin(name, GENERATORS)
    if origin is None:
        known = ", ".join(one.name for one in list_installed())
        raise InvalidSpec(
            f"No installed package has a generator {name!r}. Installed are: {known}. Whoever runs the service installs "
            "them."
        )
    return PublicGenerator(name=name, **origin.model_dump(), untrained=origin.distribution == _OURS)


def check_installed(name: str, schema: Schema) -> None:
    """Refuse a generator that is not there, or that cannot make such images.

    Raises:
        InvalidSpec: It is one of these.
    """
    find_installed(name)
    if name.startswith(diffusers_folder.PREFIX) and schema.channels not in _COLOURED:
        raise InvalidSpec(f"The generator {name} makes grey or RGB images, not {schema.channels} channels.")


def open_installed(name: str, schema: Schema, device: str = "cpu") -> ImageGenerator:
    """Load a generator.

    Raises:
        InvalidSpec: Its folder or package is not there, or not taken.
        NotFound: No package has one of this name.
        StateConflict: It does not import.
        WorkerUnavailable: Its folder is not that of a pipeline that makes and varies images.
    """
    if name.startswith(diffusers_folder.PREFIX):
        from datalens_service.models.generators.diffusers_pipeline import DiffusersPipeline

        return DiffusersPipeline(name, schema, device)
    made: ImageGenerator = load_plugin(name, GENERATORS)(schema)
    return made


class InstalledGenerator:
    """A generator whose answers are checked.

    Args:
        name: Name of the entry point, or of the folder.
        schema: Public schema of the images to make.
        device: "cpu", "cuda", …, for a pipeline of diffusers.
    """

    def __init__(self, name: str, schema: Schema, device: str = "cpu") -> None:
        self._name, self._schema = name, schema
        self._made = open_installed(name, schema, device)

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
