"""Errors of the service speak of members over REST, of fields on pages, and of options at a terminal."""

import re
from pathlib import Path
from typing import Any

import pytest
from api_builders import npz
from starlette.testclient import TestClient

from api.deps import Services
from datalens_service.store.access import keys
from datalens_service.voices import HEADER, Voice

SCRIPTS = Path(__file__).parents[2] / "api" / "pages" / "static"
VOICES = {Voice.REST: None, Voice.PAGE: "page", Voice.COMMAND_LINE: "command-line"}


def asked(voice: Voice) -> dict[str, str]:
    return {} if VOICES[voice] is None else {HEADER: voice.value}


def told(client: TestClient, voice: Voice, path: str, **request: Any) -> dict[str, Any]:
    reply = client.post(path, headers=asked(voice), **request)
    assert reply.status_code in (409, 412, 422), reply.text
    return dict(reply.json())


def test_a_wrong_member_is_named_to_its_reader_and_pointed_to_for_programs(client: TestClient, dataset_id: str) -> None:
    for voice, says in [
        (Voice.REST, "#/spec/epsilon: Must be greater than 0.0."),
        (Voice.PAGE, "“ε this job may spend”: Must be greater than 0.0."),
        (Voice.COMMAND_LINE, "--epsilon: Must be greater than 0.0."),
    ]:
        problem = told(client, voice, "/v1/jobs", json={"dataset_id": dataset_id, "spec": {"epsilon": 0}})
        assert problem["detail"] == says, voice
        [error] = problem["errors"]
        assert (error["pointer"], error["code"]) == ("#/spec/epsilon", "greater_than")


def test_a_parameter_of_a_method_has_a_name_in_each_voice(client: TestClient, dataset_id: str) -> None:
    for voice, says in [
        (Voice.REST, "#/spec/method/top: There is no member of this name; remove it or correct its spelling."),
        (Voice.PAGE, "The parameter top: There is no field of this name; remove it or correct its spelling."),
        (Voice.COMMAND_LINE, "--set top: There is no option of this name; remove it or correct its spelling."),
    ]:
        spec = {"epsilon": 1, "method": {"name": "moments", "top": 3}}
        assert told(client, voice, "/v1/plans", json={"dataset_id": dataset_id, "spec": spec})["detail"] == says, voice


def test_what_a_model_of_a_request_says_is_told_in_the_voice_of_its_reader(client: TestClient) -> None:
    for voice, unit in [
        (Voice.REST, "unit and classes_per_unit need records_per_unit."),
        (Voice.PAGE, "“Word for one” and “Most classes of one” need “Most images of one”."),
        (Voice.COMMAND_LINE, "--unit and --classes-per-unit need --records-per-unit."),
    ]:
        form = {"epsilon": "1", "unit": "patient"}
        assert unit in told(client, voice, "/v1/datasets", files={"file": npz()}, data=form)["detail"]


def test_an_endpoint_that_runs_in_a_thread_speaks_to_its_reader(client: TestClient, dataset_id: str) -> None:
    spec = {"epsilon": 0.0001, "method": {"name": "dp_sgd", "architecture": "mlp", "noise_multiplier": 0.5}}
    body = {"dataset_id": dataset_id, "spec": spec}
    details = {voice: told(client, voice, "/v1/plans", json=body)["detail"] for voice in Voice}
    assert "raise epsilon or noise_multiplier" in details[Voice.REST]
    assert "raise “ε this job may spend” or the parameter noise_multiplier" in details[Voice.PAGE]
    assert "raise --epsilon or --set noise_multiplier" in details[Voice.COMMAND_LINE]


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
    assert re.search(word, told(client, voice, "/v1/uploads")["detail"])


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
