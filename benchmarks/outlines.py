"""How long signed distances to outlines take, of many planes at once and plane by plane with SciPy.

    python -m benchmarks.outlines --out …

On the first training images of both sets, and on fewer of them enlarged to `side` pixels, in one process and thread;
`ratio` is SciPy's processor time over ours, the median of several turns. `largest_difference` is that of the distances,
in pixels.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, zoom

from benchmarks.environment import dataset, provenance
from datalens_service.models.generators.outlines import signed_distances

_LEVELS: Final = {"mnist": 0.5, "fashion_mnist": 0.1}
_ENLARGED: Final = (64, 128)
_TURNS: Final = 5


def distances_by_scipy(ink: NDArray[np.uint8], level: float) -> NDArray[np.float64]:
    """What `signed_distances` returns for one plane (height, width)."""
    farthest = 6 * math.sqrt(ink.size) / 28
    larger = zoom(ink.astype(np.float64), 3, order=1, mode="nearest", grid_mode=True) > level * 255
    if larger.all() or not larger.any():
        return np.full(ink.shape, farthest if larger.all() else -farthest)
    distances = distance_transform_edt(larger) - distance_transform_edt(~larger)
    distances = (distances - np.copysign(0.5, distances)) / 3
    means = distances.reshape(ink.shape[0], 3, ink.shape[1], 3).mean(axis=(1, 3))
    return np.asarray(means.clip(-farthest, farthest))


def timed(function: Callable[[], NDArray[Any]]) -> tuple[float, NDArray[Any]]:
    """Processor seconds, and the result."""
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


def measured_sizes(name: str, count: int) -> Iterator[dict[str, Any]]:
    """One set, at its own size and enlarged."""
    planes = dataset(name).train.images[:count, :, :, 0]
    yield measured(name, planes)
    for side in _ENLARGED:
        few = planes[: max(1, count // 10)]
        yield measured(name, np.stack([zoom(plane, side / plane.shape[0], order=1) for plane in few]))


def measured(name: str, planes: NDArray[np.uint8]) -> dict[str, Any]:
    """Planes (n, side, side) of one set."""
    level, count = _LEVELS[name], len(planes)
    turns = []
    for _ in range(_TURNS):
        alone, one_by_one = timed(lambda: np.stack([distances_by_scipy(ink, level) for ink in planes]))
        together, at_once = timed(lambda: signed_distances(planes, level))
        turns.append((alone, together))
    alone, together = (statistics.median(times) for times in zip(*turns, strict=True))
    return {
        "dataset": name,
        "side": planes.shape[1],
        "planes": count,
        "milliseconds_by_scipy": round(1000 * alone / count, 3),
        "milliseconds": round(1000 * together / count, 3),
        "ratio": round(statistics.median(first / second for first, second in turns), 1),
        "largest_difference": float(np.abs(one_by_one - at_once).max()),
    }


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planes", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    origin = provenance()
    text = json.dumps(
        {**origin, "rows": [row for name in _LEVELS for row in measured_sizes(name, options.planes)]}, indent=2
    )
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
