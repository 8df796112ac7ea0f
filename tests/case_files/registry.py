"""Register the functions that make the input cases, and write each case once."""

import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

Content = bytes | Mapping[str, bytes]
"""The bytes of a file, or the files of a folder by their paths in it."""
Maker = TypeVar("Maker", bound=Callable[[], Content])

MAKERS: Final[dict[str, Callable[[], Content]]] = {}
"""The function that makes each case, by the name of its file."""


def case_file(name: str) -> Callable[[Maker], Maker]:
    """Register a function without arguments as the maker of the case `name`.

    It returns the bytes of the file, the same at every call, or a mapping where the case is a folder.
    """

    def register(maker: Maker) -> Maker:
        if name in MAKERS:
            raise ValueError(f"two functions make {name}")
        MAKERS[name] = maker
        return maker

    return register


@functools.cache
def case_path(name: str) -> Path:
    """Write the case into a folder of this process, unless that was done, and return its path."""
    path, content = Path(_folder().name, name), MAKERS[name]()
    for inner, data in ({"": content} if isinstance(content, bytes) else content).items():
        (path / inner).parent.mkdir(parents=True, exist_ok=True)
        (path / inner).write_bytes(data)
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="datalens-cases-")
