"""Pictures of noise, no two alike, and the ways in which a case lays them out."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.data.builders import encoded, tarred


def noise(number: int, *shape: int, below: int = 230) -> NDArray[Any]:
    """The picture of this number, in 16 bits where its values need them; `shape` is 8 by 8 unless given."""
    kind = np.uint8 if below <= 256 else np.uint16
    return np.random.default_rng(number).integers(0, below, shape or (8, 8), dtype=kind)


def png(number: int, *shape: int, below: int = 230) -> bytes:
    return encoded(Image.fromarray(noise(number, *shape, below=below)))


def scan(number: int) -> bytes:
    """A PNG with the twelve bits of a scanner in sixteen."""
    return png(number, 16, 16, below=4096)


def in_folders(
    names: Iterable[str], each: int = 3, ending: str = ".png", make: Callable[[int], bytes] = png, start: int = 0
) -> dict[str, bytes]:
    """Folders with `each` pictures, whose numbers begin with `start`."""
    numbers = count(start)
    return {f"{name}/{place}{ending}": make(next(numbers)) for name in names for place in range(each)}


def pets(make: Callable[[int], bytes] = png, ending: str = ".png", each: int = 3, start: int = 0) -> dict[str, bytes]:
    """The folders of most cases: as many cats as dogs."""
    return in_folders(("cat", "dog"), each, ending, make, start)


def put_into(folder: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same files, one folder deeper."""
    return {f"{folder}/{name}": content for name, content in files.items()}


def tar_of(files: Mapping[str, bytes]) -> bytes:
    return tarred(*((name, content, {}) for name, content in files.items()))
