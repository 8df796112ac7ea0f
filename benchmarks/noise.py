"""Speed of the exact noise sampler: `python -m benchmarks.noise`.

Prints draws per second and core, and the ratio to NumPy's inexact Gaussian in the same run.
"""

from __future__ import annotations

import json
import time
from importlib.metadata import version

import numpy as np

from benchmarks.environment import provenance
from datalens_service.privacy.randomness import NoiseSource

DRAWS = 1_000_000
REPEATS = 5


def seconds(draw) -> float:
    """Median processor time of one call."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        draw()
        times.append(time.process_time() - began)
    return float(np.median(times))


def compared(stddev: int, seconds_per_draw: float) -> dict[str, object]:
    """OpenDP's exact sampler in the same run, where it is installed (`pip install opendp`)."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return {}
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int), size=DRAWS // 10), dp.l2_distance(T=float)
    measurement = dp.m.make_gaussian(*space, scale=float(stddev))
    zeros = [0] * (DRAWS // 10)
    theirs = seconds(lambda: measurement(zeros)) / len(zeros)
    return {
        f"opendp_{version('opendp')}_draws_per_second_and_core": round(1 / theirs),
        "times_faster_than_opendp": round(theirs / seconds_per_draw, 1),
    }


def main() -> None:
    """Measure three scales and print JSON."""
    source, rng = NoiseSource(), np.random.default_rng()
    rows = []
    for stddev in (800, 5000, 2**24):
        exact = seconds(lambda stddev=stddev: source.discrete_gaussian((DRAWS,), stddev))
        inexact = seconds(lambda stddev=stddev: np.rint(rng.normal(0, stddev, DRAWS)))
        rows.append(
            {
                "noise_stddev": stddev,
                "draws_per_second_and_core": round(DRAWS / exact),
                "times_slower_than_numpy_normal": round(exact / inexact, 1),
                **compared(stddev, exact / DRAWS),
            }
        )
    print(json.dumps({**provenance(), "seeds": "none: OS entropy", "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
