"""How long a whole job takes: `python -m benchmarks.jobs`.

On MNIST, from the records in memory to the generator, and from there to the last figure of the evaluation that a job
makes by default: by the clock of the wall with as many threads as torch takes, and in seconds of the processor. Run it
on a quiet machine: `load_average` says whether it was, and only the seconds of the processor mean something if not.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.environment import dataset, provenance
from benchmarks.kept_results import print_result
from benchmarks.rows import ROWS, Row
from datalens_service.data.dataset import Dataset
from datalens_service.evaluation.evaluate import Subject, evaluate
from datalens_service.methods import Moments
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.run import Result, run
from datalens_service.spec import TrainingSpec

DELTA: Final = 1e-5
JOBS: Final = {"fast": Row("preset `fast`", preset="fast"), **ROWS}
MEASURED: Final = ("fast", "mixture", "auto", "teach", "warm", "scratch", "authors")
_KIBIBYTES: Final = 2**20


class Clock:
    """Seconds since it was made, by the wall and of the processor."""

    def __init__(self) -> None:
        self._wall, self._processor = time.monotonic(), time.process_time()

    def read(self, name: str) -> dict[str, float]:
        """Both, under names of their own."""
        return {
            f"{name}_seconds": round(time.monotonic() - self._wall, 1),
            f"{name}_processor_seconds": round(time.process_time() - self._processor, 1),
        }


def timed(name: str, data: Dataset, epsilon: float) -> dict[str, Any]:
    """One job."""
    spec = JOBS[name].options(epsilon, DELTA, 0).build_spec(data.schema)
    training = Clock()
    result = run(spec, data, account=UnchargedAccount())
    trained = training.read("training")
    evaluation = Clock()
    measured(spec, data, result)
    votes = result.plan.releases[-1]
    return {
        "row": name,
        "method": JOBS[name].title,
        **trained,
        **evaluation.read("evaluation"),
        "evaluation": spec.evaluation.model_dump(mode="json"),
        "releases": result.steps_made,
        "last_release": {"what": votes.mechanism.label(), "count": votes.count},
        # Of the process so far: the largest of the jobs up to this one.
        "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIBIBYTES, 2),
    }


def measured(spec: TrainingSpec, data: Dataset, result: Result) -> None:
    """Every figure that the job of this spec measures, its baseline of moments included."""
    moments = spec.model_copy(update={"method": Moments()})
    floor = None if isinstance(spec.method, Moments) else run(moments, data, account=UnchargedAccount()).generator
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(
            generator=result.generator,
            dataset=data,
            epsilon=spec.epsilon,
            delta=result.cost.delta,
            device="cpu",
            folder=Path(folder),
            moments_generator=floor,
        )
        evaluate(subject, spec.evaluation, lambda _done, _steps: None)


def main() -> None:
    """Measure one job after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=list(JOBS), default=list(MEASURED))
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
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
    print_result(result)


if __name__ == "__main__":
    main()
