"""Files of the folder of cases get the right answers at the command line."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from datalens_service.voices import Voice, speak, spoken_to
from tests.input_cases import FOLDER, RULES, Case, Refused

_MEMBER = re.compile(r"⟦|(?<![\w-])(?:prepare|records|label|group|skip|allow|ignore|class)_[a-z_]+")


@pytest.fixture
def folder() -> Path:
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} is absent")
    return FOLDER


def options(choices: dict[str, Any]) -> Iterator[str]:
    for name, value in choices.items():
        yield f"--{name.replace('_', '-')}"
        if value is not True:
            yield from str(value).split() if name == "prepare_window" else [str(value)]


def test_the_answers_are_right(datalens: Callable[..., Any], folder: Path) -> None:
    for case in RULES:
        call = ("plan", "--epsilon", 1, "--method", "moments", "--json", "--data", folder / case.file)
        result = datalens(*call, *options(case.choices))
        with spoken_to(Voice.COMMAND_LINE):
            check(case, json.loads(result.stdout).get("error", {}))


def check(case: Case, error: dict[str, Any]) -> None:
    if not isinstance(case.answer, Refused):
        # A plan of so few images may be refused, and the file was read.
        assert error.get("code") in (None, "epsilon-infeasible", "invalid-spec", "invalid-delta"), (case, error)
        return
    assert error["code"] == "dataset-invalid", (case, error)
    assert speak(case.answer.sentence) in error["detail"], case
    assert set(case.answer.names) <= {file["name"] for file in error.get("bad_files") or ()}, (case, error)
    assert not _MEMBER.search(error["detail"]), case
