"""Each kind of answer to files of `tests/case_files` is right over REST and on the pages; readers are asked of all."""

import html
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from api_builders import another_caller, browser
from starlette.testclient import TestClient
from test_uploads import TUS
from test_validation import settled, uploaded

from datalens_service.api.main import create_app
from datalens_service.base.settings import Settings
from datalens_service.base.wording import HEADER, Voice, speak, spoken_to
from datalens_service.store.access import tenants
from datalens_service.store.access.keys import KeyRequest
from deployments.postgresql import roomy_memory
from tests.input_cases import CASES, RULES, Case, Read, Refused

FOLDER: Final = "hospital"
"""The one case that cannot be sent: a folder is for programs on its owner's machine."""
EMPTY: Final = "zero.zip"
"""A page sends files in pieces, of which this one has none."""
SENT: Final = [case for case in RULES if case.file != FOLDER]
BY_HAND: Final = [case for case in RULES if case.file not in (FOLDER, EMPTY)]
"""What pages add to REST are their words for each sentence, notice and choice."""
ROW: Final = re.compile(r'<th scope="row">([^<]+)</th><td class="right">([\d,]+)</td><td class="right">([\d,]+)</td>')


@pytest.fixture(scope="module")
def anonymous(sqlite_template: Path) -> Iterator[TestClient]:
    """A caller of one service without a key."""
    with tempfile.TemporaryDirectory(dir=roomy_memory()) as folder:
        shutil.copy(sqlite_template, folder)
        with TestClient(create_app(Settings(data_dir=Path(folder))), base_url="http://service") as http:
            yield http


def key_of_new_tenant(anonymous: TestClient) -> KeyRequest:
    """A key of a tenant that has no image yet."""
    return KeyRequest("owner", tenants.create(anonymous.app.state.services.database, uuid.uuid4().hex).id)


@pytest.fixture
def owner(anonymous: TestClient) -> TestClient:
    return another_caller(anonymous, key_of_new_tenant(anonymous))


class InFrontOfPages(NamedTuple):
    """An owner's browser: what its scripts send, and the pages that it shows."""

    script: TestClient
    pages: TestClient


@pytest.fixture(scope="module")
def visitor(anonymous: TestClient) -> InFrontOfPages:
    """One for all: what waits for its confirmation is compared with no other upload."""
    requested = key_of_new_tenant(anonymous)
    script = another_caller(anonymous, requested)
    script.headers[HEADER] = Voice.PAGE
    return InFrontOfPages(script, browser(anonymous, requested))


@pytest.mark.parametrize("case", SENT, ids=str)
def test_the_answer_over_rest_is_right(owner: TestClient, case: Case) -> None:
    form = {name: str(value) for name, value in case.choices.items()}
    reply = owner.post("/v1/datasets", files={"file": case.path.read_bytes()}, data={"epsilon": "10", **form})
    if isinstance(case.answer, Refused):
        assert reply.status_code == 422, reply.text
        check_refusal(case.answer, reply.json(), Voice.REST)
        assert owner.get("/v1/datasets").json()["items"] == []
    else:
        assert reply.status_code in (201, 202), reply.text
        check_report(case.answer, owner.get(f"/v1/datasets/{reply.json()['id']}/validation").json())
        check_schema(case.answer, reply.json())


def check_refusal(answer: Refused, problem: dict[str, Any], voice: Voice) -> None:
    with spoken_to(voice):
        assert speak(answer.sentence) in problem["detail"]
    assert "⟦" not in str(problem)
    assert set(answer.names) <= {file["name"] for file in problem["bad_files"]}


def check_report(answer: Read, report: dict[str, Any]) -> None:
    counts = report["counts"]
    assert counts["classes"] == answer.classes
    assert {name: count for name, count in counts["test_classes"].items() if answer.test} == answer.test
    noticed = {notice["code"]: notice["count"] for notice in report["notices"]}
    assert {code: noticed.get(code) for code in answer.notices} == answer.notices


def check_schema(answer: Read, dataset: dict[str, Any]) -> None:
    """The unit and the size, of what waits for its confirmation or is open."""
    found = dataset["review"] or dataset["schema"]
    assert (found["unit"], found["num_units"]) == (answer.unit or ("record", sum(answer.classes.values())))
    assert answer.size in (None, (found["width"], found["height"], found["channels"]))


@pytest.mark.parametrize("case", BY_HAND, ids=str)
def test_the_answer_on_the_page_is_right(visitor: InFrontOfPages, case: Case) -> None:
    sent = {"upload_id": uploaded(visitor.script, case.path.read_bytes()), "epsilon": 10, **case.choices}
    dataset_id = visitor.script.post("/v1/datasets", json=sent).json()["id"]
    report = settled(visitor.script, dataset_id, "/validation")
    page = html.unescape(visitor.pages.get(f"/datasets/{dataset_id}").text)
    if isinstance(case.answer, Refused):
        check_refusal(case.answer, report, Voice.PAGE)
        assert report["detail"] in page
        assert [name for name in case.answer.names if name not in page] == []
    else:
        check_report(case.answer, report)
        assert [notice["message"] for notice in report["notices"] if notice["message"] not in page] == []
        rows = {name: (int(train), int(test)) for name, train, test in ROW.findall(page)}
        expected = {name: (count, case.answer.test.get(name, 0)) for name, count in case.answer.classes.items()}
        assert rows == expected or "class_names" in case.choices


@pytest.mark.parametrize("case", [case for case in CASES if case.file == EMPTY], ids=str)
def test_a_page_says_at_once_that_a_file_is_empty(visitor: InFrontOfPages, case: Case) -> None:
    reply = visitor.script.post("/v1/uploads", headers={**TUS, "Upload-Length": "0"})
    assert isinstance(case.answer, Refused)
    assert (reply.status_code, reply.json()["code"]) == (422, "dataset-invalid")
    assert case.answer.sentence in reply.json()["detail"]


def test_every_choice_of_a_case_is_a_field_of_the_page(visitor: InFrontOfPages) -> None:
    fields = set(re.findall(r'<(?:input|select)[^>]* name="(\w+)"', visitor.pages.get("/datasets/new").text))
    assert {name for case in SENT for name in case.choices} <= fields
