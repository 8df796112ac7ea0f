"""Plug-ins of other packages, found by entry points (https://packaging.python.org/specifications/entry-points/).

    [project.entry-points."datalens.methods"]
    tilted = "my_package.tilted:Tilted"

    [project.entry-points."datalens.extractors"]
    edges = "my_package.edges:extract"

    [project.entry-points."datalens.generators"]
    shapes = "my_package.shapes:Shapes"

An operator who installs a package beside this product trusts it with private records, as they trust the product.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from datalens_service.base.errors import NotFound, StateConflict
from datalens_service.base.fields import Frozen

METHODS: Final = "datalens.methods"
EXTRACTORS: Final = "datalens.extractors"
GENERATORS: Final = "datalens.generators"


class PluginOrigin(Frozen):
    """The package that brought a plug-in; public."""

    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


def list_plugins(group: str = METHODS) -> tuple[EntryPoint, ...]:
    """List installed plug-ins of a group by name; none of them is imported."""
    return tuple(sorted(entry_points(group=group), key=lambda entry: entry.name))


def find_origin(name: str, group: str = METHODS) -> PluginOrigin | None:
    """Return the package of a method, extractor or generator; None for those of this product."""
    for entry in list_plugins(group):
        if entry.name == name and entry.dist is not None:
            return PluginOrigin(distribution=entry.dist.name, version=entry.dist.version)
    return None


def load(entry: EntryPoint) -> Any:
    """Load the object that an entry point names.

    Raises:
        StateConflict: It does not import, whatever the reason.
    """
    try:
        return entry.load()
    except Exception as error:
        raise StateConflict(f"The plug-in {entry.name} does not import: {type(error).__name__}: {error}") from error


def load_plugin(name: str, group: str = METHODS) -> Any:
    """Load the object that the entry point of a plug-in names.

    Raises:
        NotFound: No installed package has a plug-in of this name.
        StateConflict: It does not import.
    """
    for entry in list_plugins(group):
        if entry.name == name:
            return load(entry)
    raise NotFound(f"No installed package has a plug-in {name!r} in the group {group}.")
