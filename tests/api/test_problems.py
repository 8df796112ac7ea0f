"""Problems: every deliberate error has a type, every type a page, and nothing unexpected speaks.

Errors of the service speak of members over REST, of fields on pages, and of options at a terminal.
"""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from api_builders import npz
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.http.middleware import RequestLog
from datalens_service.api.problems import handlers
from datalens_service.api.problems.handlers import Problem
from datalens_service.api.problems.problem_types import PROBLEM_TYPES
from datalens_service.api.problems.request_errors import problem_errors
from datalens_service.base import logs
from datalens_service.base.errors import BudgetExceeded, DatalensError, LedgerCorrupt, StoreUnavailable
from datalens_service.base.wording import HEADER, Voice
from datalens_service.store.access import keys
from tests.wording.texts import all_errors

SECRET = "patient-4711"  # noqa: S105


@pytest.mark.parametrize("error", sorted(set(all_errors(DatalensError)), key=lambda error: error.__name__))
def test_every_deliberate_error_has_a_type(error: type[DatalensError]) -> None:
    problem = PROBLEM_TYPES[error.slug]
    assert problem.title == error.title
    assert problem.meaning.endswith(".")
    assert problem.remedy.endswith(".")


def test_every_type_leads_to_a_page(client: TestClient) -> None:
    client.headers.pop("Authorization")
    for slug in PROBLEM_TYPES:
        read = client.get(PROBLEM_TYPES[slug].uri).json()
        assert (read["type"], read["title"], read["status"]) == (f"/problems/{slug}", *_title_and_status(slug)), slug
        page = client.get(PROBLEM_TYPES[slug].uri, headers={"Accept": "text/html,*/*"})
        assert page.headers["content-type"].startswith("text/html")
        assert read["title"] in unescape(page.text)


def _title_and_status(slug: str) -> tuple[str, int | None]:
    return PROBLEM_TYPES[slug].title, PROBLEM_TYPES[slug].status


def failing(error: Exception) -> TestClient:
    """A service whose only operation raises `error`."""
    app = FastAPI()

    @app.get("/")
    def fail() -> None:
        raise error

    handlers.install(app)
    app.add_middleware(RequestLog)
    return TestClient(app)


def test_unexpected_error_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    reply = failing(ValueError(SECRET)).get("/")
    problem = reply.json()
    assert (reply.status_code, problem["code"]) == (500, "internal-error")
    assert Problem.model_validate(problem).instance == f"urn:uuid:{reply.headers['X-Request-ID']}"
    log = capsys.readouterr().err
    assert SECRET not in reply.text + log
    [unexpected] = [line for line in map(json.loads, log.splitlines()) if line["event"] == "unexpected"]
    assert unexpected["error"] == "ValueError"
    assert unexpected["request_id"] == reply.headers["X-Request-ID"]
    assert any("test_problems.py" in place for place in unexpected["at"])


@pytest.mark.parametrize(
    ("error", "status"), [(LedgerCorrupt("The journal is broken."), 500), (StoreUnavailable("Later."), 503)]
)
def test_deliberate_errors_speak(error: DatalensError, status: int) -> None:
    reply = failing(error).get("/")
    assert (reply.status_code, reply.json()["detail"]) == (status, error.detail)
    assert ("Retry-After" in reply.headers) == (status == 503)


def test_extra_members_cannot_replace_the_standard_ones() -> None:
    reply = failing(StoreUnavailable("Later.", extra={"status": 200, "hint": "disk"})).get("/")
    assert (reply.json()["status"], reply.json()["hint"]) == (503, "disk")


def test_budget_is_one_member() -> None:
    figures = {
        "epsilon_limit": 1.0,
        "epsilon_spent": 0.1,
        "epsilon_reserved": 0.2,
        "epsilon_remaining": 0.5,
        "epsilon_requested": 0.7,
        "delta": 1e-5,
    }
    problem = failing(BudgetExceeded("Too much.", extra=figures)).get("/").json()
    assert problem["budget"] == figures
    assert set(problem) == {"type", "title", "status", "detail", "instance", "code", "budget"}


def test_budget_of_a_job_without_figures() -> None:
    assert "budget" not in failing(BudgetExceeded("Too much.")).get("/").json()


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int = Field(ge=1)


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    inner: list[Inner]


def found(document: Any) -> list[dict[str, str]]:
    try:
        Outer.model_validate(document)
    except ValidationError as error:
        errors = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        return problem_errors(errors, document)
    raise AssertionError("The document is valid.")


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        ({"name": "a", "inner": [{"size": 1}, {"size": 0}]}, "#/inner/1/size", "greater_than_equal"),
        ({"name": "a", "inner": [{}]}, "#/inner/0/size", "missing"),
        ({"name": "a", "inner": [], "a/b~c": 1}, "#/a~1b~0c", "extra_forbidden"),
        ({"inner": []}, "#/name", "missing"),
        ({"name": SECRET, "inner": SECRET}, "#/inner", "list_type"),
        ({"name": 3, "inner": []}, "#/name", "string_type"),
    ],
)
def test_pointers_lead_to_the_place(document: Any, pointer: str, code: str) -> None:
    [error] = found(document)
    assert (error["in"], error["pointer"], error["code"]) == ("body", pointer, code)
    assert SECRET not in json.dumps(error)
    assert error["detail"].endswith(".")


def test_pointers_skip_names_that_are_not_in_the_document(client: TestClient, dataset_id: str) -> None:
    """pydantic adds the name of the chosen method to a location; the document does not have it."""
    method = {"name": "datalens", "num_teachers": 0, "warm_start": {"name": "moments", "clip_norm": 2}}
    reply = client.post("/v1/jobs", json={"dataset_id": dataset_id, "spec": {"method": method, "epsilon": 1}})
    pointers = {error["pointer"] for error in reply.json()["errors"]}
    assert pointers == {"#/spec/method/num_teachers", "#/spec/method/warm_start/clip_norm"}
    assert "1 more in errors" in reply.json()["detail"]


def test_query_errors_name_their_part(client: TestClient) -> None:
    [error] = client.get("/v1/jobs", params={"limit": "0"}).json()["errors"]
    assert error == {"in": "query", "pointer": "#/limit", "detail": "Must be at least 1.", "code": "greater_than_equal"}


def test_log_names_routes_and_no_values(client: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    files = {"file": (f"{SECRET}.npz", SECRET.encode())}
    client.post("/v1/datasets", files=files, data={"confirm_classes": "true", "epsilon": "1", "name": SECRET})
    client.get(f"/v1/jobs/{SECRET}", params={"q": SECRET})
    client.get(f"/{SECRET}")
    log = capsys.readouterr().err
    assert SECRET not in log
    # The service has lines of its own when it starts.
    lines = [line for line in map(json.loads, log.splitlines()) if line["event"] == "request"]
    assert [(line["route"], line["status"]) for line in lines] == [
        ("/v1/datasets", 422),
        ("/v1/jobs/{job_id}", 422),
        (None, 404),
    ]
    assert len({line["request_id"] for line in lines}) == 3


SCRIPTS = Path(__file__).parents[2] / "api" / "pages" / "static"
UNKNOWN = "of this name; remove it or correct its spelling."
NO_UNITS = {"files": {"file": npz()}, "data": {"epsilon": "1", "unit": "patient"}}
COARSE = {"epsilon": 0.0001, "method": {"name": "dp_sgd", "architecture": "mlp", "noise_multiplier": 0.5}}


@pytest.mark.parametrize(
    ("path", "sent", "pointer", "rest", "page", "terminal"),
    [
        (
            "/v1/jobs", {"epsilon": 0}, "#/spec/epsilon",
            "#/spec/epsilon: Must be greater than 0.0.",
            "“ε this job may spend”: Must be greater than 0.0.",
            "--epsilon: Must be greater than 0.0.",
        ),
        (
            "/v1/plans", {"epsilon": 1, "method": {"name": "moments", "top": 3}}, "#/spec/method/top",
            f"#/spec/method/top: There is no member {UNKNOWN}",
            f"The parameter top: There is no field {UNKNOWN}",
            f"--set top: There is no option {UNKNOWN}",
        ),
        (
            "/v1/datasets", NO_UNITS, "#",
            "unit and classes_per_unit need records_per_unit.",
            "“What one is called” and “Most classes of one person” need “Most images of one person”.",
            "--unit and --classes-per-unit need --records-per-unit.",
        ),
        (
            "/v1/plans", COARSE, None,
            "raise epsilon or noise_multiplier",
            "raise “ε this job may spend” or the parameter noise_multiplier",
            "raise --epsilon or --set noise_multiplier",
        ),
    ],
)  # fmt: skip
def test_each_reader_is_told_in_words_of_its_own_and_programs_by_a_pointer(
    client: TestClient, dataset_id: str, path: str, sent: Any, pointer: str | None, rest: str, page: str, terminal: str
) -> None:
    request = sent if "files" in sent else {"json": {"dataset_id": dataset_id, "spec": sent}}
    for voice, says in ((Voice.REST, rest), (Voice.PAGE, page), (Voice.COMMAND_LINE, terminal)):
        problem = client.post(path, headers={HEADER: voice.value}, **request).json()
        assert (problem["status"], says in problem["detail"]) == (422, True), problem["detail"]
        assert [error["pointer"] for error in problem.get("errors", ())] == ([] if pointer is None else [pointer])


def test_a_part_of_a_page_speaks_of_its_fields(client: TestClient, services: Services, dataset_id: str) -> None:
    _, plain = keys.create(services.database, "person")
    client.headers.pop("Authorization")
    client.post("/sign-in", data={"key": plain}, headers={"Origin": "http://service"})
    token = re.search(r'name="form-token" content="([^"]+)"', client.get(f"/datasets/{dataset_id}/new-job").text)
    assert token is not None
    headers = {"X-CSRF-Token": token[1], "Origin": "http://service"}
    form = {"epsilon": "0", "seed": "0", "synthetic_images": "10", "preset": "fast"}
    reply = client.post(f"/datasets/{dataset_id}/plan", json=form, headers=headers)
    assert "“ε this job may spend”: Must be" in reply.text


@pytest.mark.parametrize("length", [{}, {"Upload-Length": "5"}])
@pytest.mark.parametrize(
    ("voice", "word"),
    [
        (Voice.REST, r"Upload-Length|Tus-Resumable"),
        (Voice.PAGE, "^Reload"),
        (Voice.COMMAND_LINE, "^Install .*datalens"),
    ],
)
def test_headers_are_named_to_those_who_send_them(
    client: TestClient, voice: Voice, word: str, length: dict[str, str]
) -> None:
    client.headers.update(length)
    reply = client.post("/v1/uploads", headers={HEADER: voice.value})
    assert reply.status_code in (412, 422)
    assert re.search(word, reply.json()["detail"])


def test_every_request_of_a_page_says_that_a_page_reads_it() -> None:
    requests = {
        path.name: re.findall(r"\bfetch\(.*|new XMLHttpRequest\(.*", path.read_text()) for path in SCRIPTS.glob("*.js")
    }
    sending = {name: calls for name, calls in requests.items() if calls}
    # All of these send `headers` of service.js; whoever adds a further one has to do the same.
    assert {name: len(calls) for name, calls in sending.items()} == {"service.js": 2, "chunks.js": 2}
    assert '"Datalens-Voice": "page"' in (SCRIPTS / "service.js").read_text()
    chunks = (SCRIPTS / "chunks.js").read_text()
    assert chunks.count("...headers") == len(sending["chunks.js"])
