"""Names of a package that are loaded when they are first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def load_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the function `__getattr__` of a package, which loads a name from its module.

    Args:
        homes: Names, with blanks between them, by the module of the package that has them.
    """
    modules = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return load
