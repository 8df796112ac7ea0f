"""A text names fields, options and members by the catalogue, and the catalogue names what there is."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any, Final

import pytest
import typer.main
from fastapi.routing import APIRoute
from pydantic import BaseModel

from datalens_service.api.http.strictness import list_parameters
from datalens_service.api.rest import downloads
from datalens_service.api.schemas.access import KeyCreate
from datalens_service.api.schemas.classifiers import IndividualEpsilonForm
from datalens_service.api.schemas.common import PlanRequest
from datalens_service.api.schemas.datasets import RaiseRequest
from datalens_service.api.schemas.jobs import CloneRequest, Decision
from datalens_service.api.schemas.labels import DatasetChanges, JobChanges
from datalens_service.api.schemas.releases import ReleaseChanges, ReleaseLinkCreate
from datalens_service.api.schemas.webhooks import WebhookCreate
from datalens_service.audits.request import AuditRequest
from datalens_service.base.settings import Settings
from datalens_service.base.wording import TERMS
from datalens_service.cli.app import app
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.services.dataset_declaration import DatasetForm
from datalens_service.spec import TrainingSpec
from tests.wording.texts import ROOT, TOKEN, Text, literals, texts

_COMMAND_LINE: Final = "datalens_service/cli/"
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_IDENTIFIER: Final = re.compile(r"\b[a-z]+(?:_[a-z0-9]+)+\b")
_FILLED_IN: Final = re.compile(r"\{\w*\}")
_PACKAGES: Final = frozenset({"datalens_service", "dp_accounting", "huggingface_hub"})
_WORDS_OF_INTERFACES: Final = {
    "an option": _OPTION,
    "a header": re.compile(r"\b[A-Z][a-z]+(?:-[A-Z][a-z]+)+\b|\b[Hh]eaders?\b"),
    "a setting": re.compile(r"DATALENS_"),
    "an amount by its member": re.compile(r"\b(?:epsilon|delta|kappa)\b"),
    "a request": re.compile(r"/v1/|\bcurl\b|\b(?:HEAD|POST|GET)\b"),
}
_REQUESTS: Final[dict[str, tuple[type[BaseModel], ...]]] = {
    "": (DatasetForm,),
    "spec": (RequestedSpec, PlanRequest, CloneRequest),
    "labels": (DatasetChanges, JobChanges),
    "raise": (RaiseRequest,),
    "key": (KeyCreate,),
    "webhook": (WebhookCreate,),
    "decision": (Decision,),
    "release": (ReleaseChanges,),
    "link": (ReleaseLinkCreate,),
    "audit": (AuditRequest,),
    "record": (IndividualEpsilonForm,),
}


def _plain(text: Text) -> str:
    """What a text says in every voice."""
    words = _FILLED_IN.sub("", TOKEN.sub("", text.words))
    return words if " " in words.strip() else ""


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON schema, itself included."""
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _objects(value)
    if isinstance(schema, dict):
        yield schema


_SCHEMA: Final = tuple(_objects(TrainingSpec.model_json_schema()))
PARAMETERS: Final = frozenset(name for one in _SCHEMA for name in one.get("properties", ()))
_OF_SPECS: Final = frozenset(
    name for one in _SCHEMA for name in (*one.get("enum", ()), one.get("const")) if isinstance(name, str)
)
"""What a method or a parameter may be."""


_IN_FILES: Final = frozenset(
    f"{split}_{part}" for split in ("train", "test", "val") for part in ("images", "labels")
) | {"x_train", "y_train", "x_test", "y_test", "file_name", "savez_compressed"}
"""Names of arrays and columns that stand in files, and of the function that writes them."""
VALUES: Final = _OF_SPECS | _PACKAGES | _IN_FILES


@pytest.mark.parametrize("kind", _WORDS_OF_INTERFACES)
def test_no_text_has_a_word_of_one_interface_alone(kind: str) -> None:
    assert len(texts()) > 500
    at_a_terminal = (_COMMAND_LINE,) if kind in ("an option", "an amount by its member") else ()
    found = {
        text.place: text.words
        for text in texts()
        if not text.place.startswith(at_a_terminal or ("/",)) and _WORDS_OF_INTERFACES[kind].search(_plain(text))
    }
    assert found == {}


def test_no_text_names_a_member_but_by_the_catalogue() -> None:
    found = {
        text.place: text.words
        for text in texts()
        if set(_IDENTIFIER.findall(_OPTION.sub("", _plain(text)).replace("--set top_k", ""))) - VALUES
    }
    assert {place: words for place, words in found.items() if "--set top_k=" not in words} == {}


def test_every_name_in_a_text_is_in_the_catalogue() -> None:
    for text in literals():
        names = TOKEN.findall(text.words)
        assert text.words.count("⟦") == len(names), text
        for name in names:
            assert name in TERMS or _follows_a_rule(name), text


def _follows_a_rule(name: str) -> bool:
    start, _, rest = name.partition(".")
    if "{}" in name or name == "name":
        return True
    if name.startswith("DATALENS_"):
        return name.removeprefix("DATALENS_").lower() in Settings.model_fields
    if start == "evaluation":
        return rest in EvaluationSettings.model_fields
    return start == "method" and set(rest.split(".")) <= PARAMETERS


def test_every_name_of_the_catalogue_is_used() -> None:
    used = {name for text in literals() for name in TOKEN.findall(text.words)}
    members = {name for name in TERMS if _request_of(name) is not None}
    assert TERMS.keys() - used - members == set()


def _request_of(name: str) -> str | None:
    kind, _, member = name.rpartition(".")
    return kind if kind in _REQUESTS and _has(kind, member) else None


def _has(kind: str, member: str) -> bool:
    return any(member in model.model_fields for model in _REQUESTS[kind])


@pytest.mark.parametrize("name", sorted(name for name in TERMS if "." in name))
def test_members_are_those_of_the_requests(name: str) -> None:
    kind, _, member = name.partition(".")
    assert TERMS[name].rest == member
    if kind in _REQUESTS:
        assert _has(kind, member)
    else:
        routes = [route for route in downloads.router.routes if isinstance(route, APIRoute)]
        assert any(member in list_parameters(route) for route in routes)


def test_fields_are_labels_of_pages() -> None:
    folder = ROOT / "api" / "pages" / "templates"
    pages = unescape(" ".join(re.sub(r"<[^>]*>", " ", page.read_text()) for page in folder.rglob("*.j2")))
    shown = " ".join(pages.split())
    labels = {label for term in TERMS.values() for label in re.findall("“([^”]+)”", term.page)}
    assert len(labels) > 20
    assert {label for label in labels if label not in shown} == set()


def _commands(command: Any, path: str = "datalens") -> Iterator[tuple[str, set[str]]]:
    yield path, {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")


COMMANDS: Final = dict(_commands(typer.main.get_command(app)))
OPTIONS: Final = frozenset(option for options in COMMANDS.values() for option in options)


@pytest.mark.parametrize("name", sorted(TERMS))
def test_options_are_those_of_commands(name: str) -> None:
    words = TERMS[name].command_line
    assert set(_OPTION.findall(words)) <= OPTIONS
    for command in re.findall(r"`(datalens [^`]+?)(?: --[a-z-]+)?`", words):
        assert command in COMMANDS


def test_options_in_texts_of_the_command_line_are_those_of_commands() -> None:
    named = {option for text in texts() for option in _OPTION.findall(text.words)}
    assert named <= OPTIONS
