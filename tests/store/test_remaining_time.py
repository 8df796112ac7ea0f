"""What is said of the rest of a job: replays of recorded jobs, phase by phase."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rows import ROWS, Row
from datalens_service.base.progress import Phase
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.planning import phases
from datalens_service.spec import TrainingSpec
from datalens_service.store.jobs.remaining_time import seconds_left

RUNS = [json.loads(line) for line in Path(__file__).with_name("recorded_jobs.jsonl").read_text().splitlines()]
"""Places that jobs on MNIST had reached, by seconds of the processor."""
OTHER_ROWS = {
    "dp_sgd": Row("`dp_sgd`", method="dp_sgd"),
    "classifier": Row("preset `classifier`", preset="classifier"),
}


def spec_of(run: dict[str, Any], schema: Schema) -> TrainingSpec:
    row = (ROWS | OTHER_ROWS)[run["row"]]
    spec = row.options(run["epsilon"], 1e-5, 0).build_spec(schema)
    if spec.method.result != "generator":
        return spec
    return spec.model_copy(update={"evaluation": EvaluationSettings(synthetic_images=4_000, seeds=1)})


def expect(run: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What a plan says today, of the machine that recorded the run, which packed no files."""
    monkeypatch.setattr(phases, "measure_machine", lambda: run["measured_machine"])
    schema = Schema.model_validate(run["schema"])
    expected = phases.expect_phases(spec_of(run, schema), schema)
    return expected | {Phase.PACKAGING: 0.1}


def replay(run: dict[str, Any], expected: dict[str, float], slower: float) -> list[tuple[float, float | None, float]]:
    """Seconds since its start, what is said to be left then, and what is."""
    said, began, start, earlier = [], 0.0, 0, ""
    total = run["trace"][-1][0] * slower
    for seconds, phase, value, maximum in run["trace"][:-1]:
        at = seconds * slower
        if phase != earlier:
            began, start, earlier = at, value, phase
        share = (value - start) / (maximum - start) if maximum > start else 0.0
        said.append((at, seconds_left(phase, share, began, at - began, expected), total - at))
    return said


def is_right(said: float | None, left: float) -> bool:
    """Whole minutes are shown."""
    if said is None:
        return False
    shown, true = (max(1, math.ceil(seconds / 60)) for seconds in (said, left))
    return true / 2 <= shown <= 2 * true


@pytest.mark.parametrize("slower", [1.0, 2.0, 4.0], ids=lambda slower: f"{slower:g}x")
@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run["row"]))
def test_the_rest_is_known_within_a_factor_of_two_after_the_first_minute(
    run: dict[str, Any], slower: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = replay(run, expect(run, monkeypatch), slower)
    # A machine that is four times as slow as the plan thinks needs as long to show it.
    begin = 60.0 if slower <= 2.0 else 60.0 * slower
    wrong = [one for one in told if one[0] >= begin and not is_right(one[1], one[2])]
    assert not wrong, wrong[:3]


@pytest.mark.parametrize("slower", [0.5, 2.0, 4.0], ids=lambda slower: f"{slower:g}x")
def test_an_evaluation_after_short_phases_is_soon_known_on_a_busy_machine(slower: float) -> None:
    expected = {Phase.TRAINING: 1.0, Phase.PACKAGING: 3.0, Phase.EVALUATING: 80.0, Phase.REPORTING: 3.0}
    begins, whole = 15.0, slower * expected[Phase.EVALUATING]
    for at in range(60, int(begins + whole)):
        said = seconds_left(Phase.EVALUATING, (at - begins) / whole, begins, at - begins, expected)
        assert is_right(said, begins + whole + slower * expected[Phase.REPORTING] - at), at


def test_a_job_without_expectations_goes_by_its_steps() -> None:
    assert seconds_left(Phase.TRAINING, 0.0, 0.0, 9.0, {}) is None
    assert seconds_left(Phase.TRAINING, 0.25, 0.0, 10.0, {}) == pytest.approx(30.0)


def test_an_overdue_phase_without_steps_still_has_something_left() -> None:
    expected = {Phase.TRAINING: 20.0, Phase.DRAWING: 10.0, Phase.EVALUATING: 60.0}
    left = seconds_left(Phase.DRAWING, 0.0, 20.0, 40.0, expected)
    assert left is not None
    assert left > 60.0


def test_a_slow_machine_is_slow_in_later_phases_too() -> None:
    expected = {Phase.TRAINING: 20.0, Phase.EVALUATING: 60.0}
    usual, slow = (seconds_left(Phase.EVALUATING, 0.0, before, 0.0, expected) for before in (20.0, 100.0))
    assert usual is not None
    assert slow == pytest.approx(5 * usual)
