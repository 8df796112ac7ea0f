"""`datalens plan`: prices without and with data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from datalens_service.cli.commands.plan import describe_plan
from datalens_service.data import read_upload
from datalens_service.methods import Moments
from datalens_service.spec import PlanSummary, TrainingSpec, VoteAllowance

Run = Callable[..., Result]
Json = Callable[..., Any]


def test_without_data_it_says_how_many_images_are_voted_on(datalens: Run, datalens_json: Json) -> None:
    command = ("plan", "--top-k", 200, "--noise-stddev", 5000, "--epsilon", 1, "--delta", "1e-5")
    plan = datalens_json(*command)
    assert set(plan) == set(VoteAllowance.model_fields) == {"images", "mu", "epsilon_at_plan", "delta"}
    assert (plan["images"], plan["delta"]) == (2245, 1e-5)
    assert 0.99 < plan["epsilon_at_plan"] <= 1
    result = datalens(*command)
    assert result.exit_code == 0
    assert "2,245" in result.stdout
    assert "ε planned  1\n" in result.stdout
    assert result.stderr == ""


def test_with_data_it_is_the_plan_that_a_job_would_get(datalens_json: Json, npz: Path) -> None:
    plan = datalens_json("plan", "--data", npz, "--epsilon", 2, "--method", "moments")
    schema = read_upload(npz).schema
    expected = TrainingSpec(method=Moments(), epsilon=2.0).price(schema)
    assert PlanSummary.model_validate(plan | {"phase_seconds": {}}) == expected
    assert {"training", "drawing", "packaging", "evaluating", "reporting"} <= plan["phase_seconds"].keys()
    assert plan["delta"] == pytest.approx(1e-5)


def test_settings_reach_the_method(datalens_json: Json, npz: Path) -> None:
    options = ("plan", "--data", npz, "--epsilon", 2, "--method", "moments")
    assert datalens_json(*options, "--set", "subspace_dimensions=5")["releases"][1]["dimensions"] == 5


def test_people_read_what_sampled_batches_cost(datalens: Run, npz: Path) -> None:
    settings = ("sampling=poisson", "architecture=linear", "batch=4", "steps=5", "noise_multiplier=3")
    named = [part for setting in settings for part in ("--set", setting)]
    budget = ("--epsilon", 3, "--delta", "1e-4")
    result = datalens("plan", "--data", npz, *budget, "--method", "dp_sgd", *named)
    assert result.exit_code == 0, result.stderr
    for part in ("spare steps", "expected passes", "part of δ that is slack", "5e-6", "ε of the run alone"):
        assert part in result.stdout


SETTINGS = [
    ("nonsense=1", "nonsense"),
    ("clip_norm", "key=value"),
    ("clip_norm=7", "clip_norm"),
    # A number is one only if it is written as one.
    ("subspace_dimensions=1_0", "subspace_dimensions"),
    ('subspace_dimensions="10"', "subspace_dimensions"),
    ("subspace_dimensions=10.0", "subspace_dimensions"),
    ("clip_norm=true", "clip_norm"),
    ("clip_norm=NaN", "finite"),
    ("evaluation.enabled=1", "enabled"),
    ('evaluation={"epochs": 1, "epochs": 2}', "epochs"),
]
MOMENTS = ("--data", "@", "--method", "moments", "--set")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "--data"),
        (("--top-k", "200", "--delta", "1e-5"), "--noise-stddev"),
        (("--top-k", "200", "--noise-stddev", "5000"), "--delta"),
        (("--top-k", "200", "--noise-stddev", "5000", "--delta", "1e-5", "--method", "moments"), "need --data"),
        (("--top-k", "200", "--noise-stddev", "50", "--delta", "1e-5"), "σ of at least 100"),
        (("--top-k", "200", "--noise-stddev", "5000", "--delta", "2"), "--delta must lie"),
        (("--data", "@", "--method", "moments", "--preset", "fast"), "not both"),
        (("--data", "@", "--preset", "fast", "--purpose", "teach"), "of the preset auto, not of fast"),
        (("--data", "@", "--method", "moments", "--purpose", "teach"), "not both"),
        (("--data", "@", "--method", "moments", "--delta", "0.5"), "1/n"),
        (("--data", "@", "--method", "datalens", "--set", "num_teachers=81"), "81"),
        (("--data", "@", "--top-k", "20"), "--set top_k=20"),
        *(((*MOMENTS, setting), part) for setting, part in SETTINGS),
        ((*MOMENTS, "subspace_dimensions=5", "--set", "subspace_dimensions=6"), "subspace_dimensions twice"),
    ],
)
def test_what_is_missing_or_wrong_is_named(datalens: Run, npz: Path, arguments: tuple[str, ...], part: str) -> None:
    given = [npz if argument == "@" else argument for argument in arguments]
    result = datalens("plan", "--epsilon", 1, *given, "--json")
    assert result.exit_code == 2
    assert part in json.loads(result.stdout)["error"]["detail"]


@pytest.mark.parametrize("text", ["1_0", " 1", "inf", "0x1", "١", "+1"])
@pytest.mark.parametrize("option", ["--epsilon", "--delta", "--top-k", "--noise-stddev"])
def test_a_number_is_in_plain_notation(datalens: Run, option: str, text: str) -> None:
    values = {"--epsilon": "1", "--delta": "1e-5", "--top-k": "200", "--noise-stddev": "5000", option: text}
    result = datalens("plan", *(part for pair in values.items() for part in pair))
    assert result.exit_code == 2
    assert option in result.stderr


def test_a_plan_warns_of_noise_that_drowns_the_gradient(datalens: Run, npz: Path) -> None:
    settings = ("--method", "dp_sgd", "--set", "architecture=linear", "--set", "steps=10000")
    result = datalens("plan", "--data", npz, "--epsilon", 0.5, *settings)
    assert result.exit_code == 0
    assert "learn little" in " ".join(result.stdout.split())


@pytest.mark.parametrize(("branch", "word"), [({}, ""), ({"branch": "objects"}, "at most ")])
def test_of_branches_the_dearest_is_stated(branch: dict[str, str], word: str) -> None:
    cost = {
        "method": "m", "images": 0, "steps": 65, "mu": 1.0, "epsilon_at_plan": 9.9, "epsilon_limit": 10.0,
        "epsilon_replace_one": 20.0, "delta": 1e-5, "warnings": [], "releases": [{"count": 65, **branch}],
    }  # fmt: skip
    lines = describe_plan(cost)
    assert (lines["releases"], lines["ε planned"]) == (f"{word}65", f"{word}9.9 of 10.0 allowed")
