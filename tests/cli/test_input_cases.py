"""Files of `tests/case_files` get the right answers at the command line, in its words."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from typer.testing import Result

from datalens_service.base.wording import Voice, speak, spoken_to
from tests.case_files import case_path
from tests.input_cases import CASES, RULES, Case, Read, Refused

Run = Callable[..., Result]

PLAN: Final = ("plan", "--epsilon", 1, "--method", "moments", "--json", "--data")
PREPARED: Final = [case for case in CASES if "prepare_size" in case.choices and isinstance(case.answer, Read)]
REFUSED_PLANS: Final = (None, "epsilon-infeasible", "invalid-spec", "invalid-delta")
"""A plan for so few images may be refused, and the file was read."""
MEMBER: Final = re.compile(r"⟦|(?<![\w-])(?:prepare|records|label|group|skip|allow|ignore|class)_[a-z_]+")
"""A name of another interface."""


def options(choices: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Options of a command whose own names leave `prefix` out."""
    for name, value in choices.items():
        yield f"--{name.removeprefix(prefix).replace('_', '-')}"
        if value is not True:
            yield from str(value).split() if name == "prepare_window" else [str(value)]


@pytest.mark.parametrize("case", RULES, ids=str)
def test_the_answer_at_the_command_line_is_right(datalens: Run, case: Case) -> None:
    error = json.loads(datalens(*PLAN, case.path, *options(case.choices)).stdout).get("error", {})
    if isinstance(case.answer, Refused):
        check_refusal(case.answer, error)
    else:
        assert error.get("code") in REFUSED_PLANS, error


def check_refusal(answer: Refused, error: dict[str, Any]) -> None:
    assert error["code"] == "dataset-invalid", error
    with spoken_to(Voice.COMMAND_LINE):
        assert speak(answer.sentence) in error["detail"]
    assert set(answer.names) <= {file["name"] for file in error.get("bad_files") or ()}
    assert not MEMBER.search(error["detail"])


@pytest.mark.parametrize("case", PREPARED, ids=str)
def test_files_are_prepared_as_they_are_uploaded(datalens_json: Callable[..., Any], case: Case) -> None:
    # `prepare` counts persons itself, and needs no declaration of them.
    choices = {name: value for name, value in case.choices.items() if name != "records_per_unit"}
    said = datalens_json("prepare", case.path, "--out", "images.npz", *options(choices, "prepare_"))
    assert isinstance(case.answer, Read)
    check_prepared(case.answer, said)


def check_prepared(answer: Read, said: dict[str, Any]) -> None:
    assert said["images"] == sum(answer.classes.values())
    assert said["classes"] == ", ".join(answer.classes)
    if answer.unit is not None:
        word, count = answer.unit
        assert said[f"{word}s"].startswith(f"{count}, each with at most ")
    noticed = {notice["code"]: notice["count"] for notice in said["notices"]}
    assert {code: noticed.get(code) for code in answer.notices} == answer.notices


def test_a_plan_for_five_images_says_what_to_expect(datalens: Run) -> None:
    result = datalens("plan", "--epsilon", 1, "--data", case_path("five.npz"))
    assert "Expect noise more than pictures" in " ".join(result.stdout.split())
