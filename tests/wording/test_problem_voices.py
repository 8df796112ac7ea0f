"""Every type of problem, told to each reader: only in the words of the interface that the reader has in front."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from datalens_service.api.http.middleware import ReaderVoice, RequestLog
from datalens_service.api.main import create_app
from datalens_service.api.problems import handlers
from datalens_service.api.problems.problem_types import PROBLEM_TYPES, ProblemType
from datalens_service.api.schemas.jobs import JobError
from datalens_service.base.errors import DatalensError, InvalidInput, InvalidSpec, RateLimited, WorkerUnavailable
from datalens_service.base.wording import HEADER, TERMS, Voice, speak, spoken, spoken_to
from datalens_service.data.intake.sandbox.exchange import ReadingOutcome
from datalens_service.data.intake.sandbox.sandbox import Refused
from datalens_service.data.intake.untrusted.validation_errors import BadFile
from datalens_service.jobs.failures import describe_problem
from datalens_service.services.validation_queue import invalid_report
from tests.wording.texts import all_errors, texts

_OPTION: Final = r"(?<![\w-])--[a-z]"
_HEADER: Final = r"\b(?:Upload-\w+|Tus-\w+|Retry-After|Content-Range|Idempotency-Key|Authorization)\b"
_REQUEST: Final = r"\bcurl\b|\b(?:HEAD|POST|GET)\b|\bmembers?\b|`errors`|`detail`|`instance`|`links`"
_LABEL: Final = (
    r"“(?:"
    + "|".join(re.escape(label) for term in TERMS.values() for label in re.findall("“([^”]+)”", term.page))
    + ")”"
)
_PAGE: Final = rf"{_LABEL}|reload the page|\bfields?\b"
FOREIGN: Final = {
    Voice.REST: re.compile(f"{_OPTION}|{_PAGE}"),
    Voice.PAGE: re.compile(f"{_OPTION}|{_HEADER}|{_REQUEST}"),
    Voice.COMMAND_LINE: re.compile(f"{_HEADER}|{_REQUEST}|{_PAGE}"),
}
"""Words that a reader of that interface has never seen."""

_OF_ATTACKS: Final = re.compile(r"two members and two others|non-members")
"""Members of a training set, which is what attacks tell."""


def _check(words: str, voice: Voice) -> None:
    assert "⟦" not in words
    assert words.strip()
    assert FOREIGN[voice].search(_OF_ATTACKS.sub("", words)) is None, words


def _classes(slug: str) -> list[type[DatalensError]]:
    return [found for found in all_errors(DatalensError) if found.slug == slug]  # type: ignore[misc,attr-defined]


def answering(error: Exception) -> TestClient:
    """A service whose only operation of the API, and whose only page, raise `error`."""
    app = FastAPI()

    @app.get("/v1/object")
    @app.get("/object")
    def fail() -> None:
        raise error

    handlers.install(app)
    app.add_middleware(RequestLog)
    app.add_middleware(ReaderVoice)
    return TestClient(app)


def _occurrence(problem: ProblemType) -> Exception:
    """The error that makes a problem of this type, with the advice of the type as its words."""
    if classes := _classes(problem.slug):
        extra = {"retry_after": 1} if classes[0] is RateLimited else None
        return classes[0](problem.advice, extra=extra)
    return HTTPException(problem.status or 500)


@pytest.mark.parametrize("voice", Voice)
@pytest.mark.parametrize("slug", PROBLEM_TYPES)
def test_each_type_is_told_in_the_words_of_its_reader(slug: str, voice: Voice) -> None:
    problem = PROBLEM_TYPES[slug]
    with spoken_to(voice):
        _check(f"{problem.title}. {problem.meaning} {problem.remedy}", voice)
        _check(JobError.from_error({"type": slug, "detail": problem.advice}).detail, voice)
    if problem.status is not None:
        answer = answering(_occurrence(problem)).get("/v1/object", headers={HEADER: voice.value}).json()
        assert answer["code"] == slug
        _check(f"{answer['title']}. {answer['detail']}", voice)


@pytest.mark.parametrize("voice", Voice)
def test_each_text_is_told_in_the_words_of_its_reader(voice: Voice) -> None:
    # At a terminal, and from its own forms, an error has one reader.
    only = {"datalens_service/cli": Voice.COMMAND_LINE, "api/pages": Voice.PAGE}
    readers = ((text, next((only[place] for place in only if text.place.startswith(place)), voice)) for text in texts())
    told = [text for text, reader in readers if " " in text.words and reader is voice]
    assert len(told) > 500
    with spoken_to(voice):
        for text in told:
            _check(speak(text.words.replace("{}", "epochs")), voice)


_NAMES: Final = {
    Voice.REST: "Raise epsilon.",
    Voice.PAGE: "Raise “ε this job may spend”.",
    Voice.COMMAND_LINE: "Raise --epsilon.",
}


def test_the_address_and_a_header_of_each_request_say_who_reads() -> None:
    client = answering(InvalidSpec("Raise ⟦spec.epsilon⟧."))
    for path, headers, voice in 2 * [
        ("/v1/object", {}, Voice.REST),
        ("/v1/object", {HEADER: "page"}, Voice.PAGE),
        ("/v1/object", {HEADER: "command-line"}, Voice.COMMAND_LINE),
        ("/v1/object", {HEADER: "opera"}, Voice.REST),
        ("/object", {}, Voice.PAGE),
        ("/object", {HEADER: "command-line"}, Voice.PAGE),
    ]:
        assert client.get(path, headers=headers).json()["detail"] == _NAMES[voice], (path, headers)


def _stored_job_error(error: DatalensError) -> Callable[[], Any]:
    problem = describe_problem(error)
    return lambda: JobError.from_error(problem).detail


def _stored_report(error: DatalensError) -> Callable[[], Any]:
    report = invalid_report(error)
    return lambda: spoken(report)["detail"]


def _stored_bad_file(error: DatalensError) -> Callable[[], Any]:
    refused = Refused(ReadingOutcome(refusal="No.", bad_files=(BadFile(name="a.png", reason=error.text),), bad_count=1))
    report = invalid_report(refused)
    return lambda: spoken(report)["bad_files"][0]["reason"]


@pytest.mark.parametrize("keep", [_stored_job_error, _stored_report, _stored_bad_file])
def test_what_is_kept_is_told_to_whoever_reads_it_later(keep: Callable[[DatalensError], Callable[[], Any]]) -> None:
    with spoken_to(Voice.COMMAND_LINE):
        read = keep(WorkerUnavailable("Raise ⟦spec.epsilon⟧."))
    for voice in Voice:
        with spoken_to(voice):
            assert read() == _NAMES[voice]


def test_an_error_made_in_a_voice_is_told_to_whoever_reads_it() -> None:
    with spoken_to(Voice.PAGE):
        error = InvalidInput("Raise ⟦spec.epsilon⟧.")
    assert error.detail == _NAMES[Voice.REST]


def test_names_of_an_owner_are_never_rewritten() -> None:
    """A class is confirmed as it would be published."""
    named = {"review": {"classes": [{"name": "⟦epsilon⟧"}]}, "names": ["⟦epsilon⟧"], "detail": "Raise ⟦epsilon⟧."}
    with spoken_to(Voice.COMMAND_LINE):
        assert spoken(named) == named | {"detail": "Raise --epsilon."}


def test_requests_have_the_kind_of_an_operation_that_exists() -> None:
    paths = create_app().openapi()["paths"]
    assert not [end for end in handlers._KINDS if not any(path.endswith(end) for path in paths)]
