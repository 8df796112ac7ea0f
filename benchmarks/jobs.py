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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.environment import dataset, provenance
from benchmarks.kept_results import print_result
from benchmarks.panel import Cell, draw
from benchmarks.rows import ROWS, Row
from datalens_service.base.progress import Phase
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.evaluation.evaluate import EvaluatedModel, evaluate
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.methods import Moments
from datalens_service.models.generators.generator import Generator
from datalens_service.planning.machine import measure_machine
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import Result, run

DELTA: Final = 1e-5
JOBS: Final = {"fast": Row("preset `fast`", preset="fast"), **ROWS}
TRACED: Final = {
    **JOBS,
    "guided": Row("`guided`", method="guided"),
    "dp_sgd": Row("`dp_sgd`", method="dp_sgd"),
    "classifier": Row("preset `classifier`", preset="classifier"),
}
_TOLD_SECONDS: Final = 0.5
MEASURED: Final = ("fast", "mixture", "auto", "teach", "warm", "scratch")
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


def _silent(_done: int, _steps: int) -> None:
    """Observe nothing."""


def measured(spec: TrainingSpec, data: Dataset, result: Result, observe: Callable[[int, int], None] = _silent) -> None:
    """Every figure that the job of this spec measures, its baseline of moments included."""
    moments = spec.model_copy(update={"method": Moments()})
    floor = None if isinstance(spec.method, Moments) else run(moments, data, account=UnchargedAccount()).generator
    with tempfile.TemporaryDirectory() as folder:
        subject = EvaluatedModel(
            generator=result.generator,
            dataset=data,
            epsilon=spec.epsilon,
            delta=result.cost.delta,
            device="cpu",
            folder=Path(folder),
            moments_generator=floor,
        )
        evaluate(subject, spec.evaluation, observe)


class Trace:
    """Where a job was, by seconds of the processor: what replays of its progress are tested on."""

    def __init__(self) -> None:
        self._began = time.process_time()
        self.places: list[tuple[float, str, int, int]] = []

    def __call__(self, phase: Phase, value: int, maximum: int) -> None:
        """Note where a phase begins, and each half second the place that it has reached."""
        at = round(time.process_time() - self._began, 2)
        began = len(self.places) < 2 or self.places[-2][1] != self.places[-1][1]
        if self.places and phase == self.places[-1][1] and not began and at < self.places[-1][0] + _TOLD_SECONDS:
            at = self.places.pop()[0]
        self.places.append((at, phase.value, value, maximum))


def traced_spec(name: str, epsilon: float, schema: Schema) -> TrainingSpec:
    """What a traced job asks for."""
    spec = TRACED[name].options(epsilon, DELTA, 0).build_spec(schema)
    if spec.method.result != "generator":
        return spec
    return spec.model_copy(update={"evaluation": EvaluationSettings(synthetic_images=4_000, seeds=1)})


def traced(name: str, epsilon: float, units: int) -> dict[str, Any]:
    """One job on so many records of MNIST, phase by phase."""
    data = draw(Cell("mnist", units, epsilon), 0)
    spec, trace = traced_spec(name, epsilon, data.schema), Trace()
    result = run(spec, data, account=UnchargedAccount(), observe=trace)
    if isinstance(result.model, Generator):
        trace(Phase.DRAWING, 0, 1)
        result.model.sample(spec.synthetic_images, observe=partial(trace, Phase.DRAWING))
        trace(Phase.PACKAGING, 0, 1)
        trace(Phase.EVALUATING, 0, 1)
        measured(spec, data, result, partial(trace, Phase.EVALUATING))
        trace(Phase.REPORTING, 0, 1)
        result.model.sample(spec.synthetic_images)
    trace(Phase.ATTACKING, 1, 1)
    public = {
        "row": name,
        "epsilon": epsilon,
        "method": spec.method.name,
        "schema": data.schema.model_dump(mode="json"),
    }
    return {**provenance(), **public, "measured_machine": measure_machine(), "trace": trace.places}


def main() -> None:
    """Measure one job after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=list(JOBS), default=list(MEASURED))
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--trace", choices=list(TRACED), help="write down the progress of one job")
    parser.add_argument("--units", type=int, default=2_000, help="records of a traced job")
    options = parser.parse_args()
    if options.trace:
        print_result(traced(options.trace, options.epsilon, options.units))
        return
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
