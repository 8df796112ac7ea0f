"""Where a job on MNIST was, by seconds of the processor: `python -m benchmarks.progress --row auto --units 2000`.

A line of `benchmarks/results/progress.jsonl` is a recorded job, which a test of the time that is left replays.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.environment import provenance
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
TRACED: Final = {
    **ROWS,
    "fast": Row("preset `fast`", preset="fast"),
    "guided": Row("`guided`", method="guided"),
    "dp_sgd": Row("`dp_sgd`", method="dp_sgd"),
    "classifier": Row("preset `classifier`", preset="classifier"),
}
_TOLD_SECONDS: Final = 0.5


def measured(spec: TrainingSpec, data: Dataset, result: Result, observe: Callable[[int, int], None]) -> None:
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
    """Record one job."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", choices=list(TRACED), required=True)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--units", type=int, default=2_000, help="records of the job")
    options = parser.parse_args()
    print_result(traced(options.row, options.epsilon, options.units))


if __name__ == "__main__":
    main()
