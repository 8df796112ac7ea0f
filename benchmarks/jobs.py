"""How long a whole job takes: `python -m benchmarks.jobs --out benchmarks/results/jobs.json`.

From the records in memory to the generator, on MNIST, by the clock of the wall with as many threads as torch takes.
Run it on a quiet machine: `load_average` says whether it was. Evaluation is not part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.environment import dataset, provenance
from benchmarks.rows import ROWS
from datalens_service.data.dataset import Dataset
from datalens_service.run import run

DELTA: Final = 1e-5
MEASURED: Final = ("moments", "mixture", "auto", "warm", "scratch", "authors")
_KIBIBYTES: Final = 2**20


def timed(name: str, data: Dataset, epsilon: float) -> dict[str, Any]:
    """One job."""
    spec = ROWS[name].options(epsilon, DELTA, 0).spec(data.schema)
    began, processor = time.monotonic(), time.process_time()
    result = run(spec, data)
    votes = result.plan.releases[-1]
    return {
        "row": name,
        "method": ROWS[name].title,
        "seconds": round(time.monotonic() - began, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "releases": result.steps_made,
        "last_release": {"what": votes.mechanism.label(), "count": votes.count},
        # Of the process so far: the largest of the jobs up to this one.
        "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIBIBYTES, 2),
    }


def main() -> None:
    """Measure one job after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(MEASURED))
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    data = dataset(options.dataset)
    result = {
        **provenance(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
        "dataset": options.dataset,
        "epsilon": options.epsilon,
        "delta": DELTA,
        "jobs": [timed(name, data, options.epsilon) for name in options.rows],
    }
    text = json.dumps(result, indent=2, ensure_ascii=False)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
