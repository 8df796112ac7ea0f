"""Files of the folder of cases get the right answers over REST, in its own words and in those of the pages."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from datalens_service.voices import HEADER, Voice, speak, spoken_to
from tests.input_cases import FOLDER, RULES, Case, Read, Refused

FILES = [case for case in RULES if case.file != "hospital"]
"""A folder is no upload."""

_FOREIGN = re.compile(r"⟦|--[a-z]|\b(?:prepare|records|label|group|skip|allow|ignore|class)_[a-z_]+")
"""Options, and members of REST."""


@pytest.fixture
def folder() -> Path:
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} is absent")
    return FOLDER


@pytest.mark.parametrize("voice", [Voice.REST, Voice.PAGE])
def test_the_answers_are_right(client: TestClient, folder: Path, voice: Voice) -> None:
    for case in FILES:
        fields = {name: str(value).lower() if value is True else value for name, value in case.choices.items()}
        with (folder / case.file).open("rb") as file:
            reply = client.post("/v1/datasets", files={"file": file}, data=fields, headers={HEADER: voice.value})
        with spoken_to(voice):
            check(case, reply.status_code, reply.json(), voice)


def check(case: Case, status: int, content: dict, voice: Voice) -> None:
    if isinstance(case.answer, Refused):
        assert (status, content["code"]) == (422, "dataset-invalid"), case
        assert speak(case.answer.sentence) in content["detail"], case
        assert set(case.answer.names) <= {file["name"] for file in content["bad_files"]}, case
        told = [content["detail"], *(file["reason"] for file in content["bad_files"])]
        assert voice is Voice.REST or not any(map(_FOREIGN.search, told)), case
    else:
        # Named classes are confirmed; the others wait, and nothing is opened or compared.
        expected = ("invalid-spec",) if "class_names" in case.choices else ("review",)
        assert (content.get("code") or content["state"]) in expected, (case, content)
        if content.get("state") == "review":
            check_review(case, case.answer, content)


def check_review(case: Case, answer: Read, content: dict) -> None:
    assert {item["name"]: item["train"] for item in content["review"]["classes"]} == answer.classes, case
    tested = {item["name"]: item["test"] for item in content["review"]["classes"]}
    assert tested == (answer.test or dict.fromkeys(answer.classes, 0)), case
    noticed = {notice["code"]: notice["count"] for notice in content["notices"]}
    assert {code: noticed.get(code) for code in answer.notices} == answer.notices, case
    assert (content["schema"], content["privacy"]) == (None, None)
