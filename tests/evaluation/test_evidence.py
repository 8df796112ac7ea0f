"""The evidence file and the entry of the registry: each question leads to fields that the report of a job answers."""

import html
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from datalens_service.report.build import REQUIRED_FIELDS, owner_view, releasable_view
from datalens_service.report.evidence import ANSWERS, evidence_page
from datalens_service.report.frameworks import FRAMEWORKS
from datalens_service.report.registry import UNKNOWN, registry_entry

from .conftest import report

LEGAL = Path(__file__).parents[2] / "docs" / "legal.md"
EXAMPLE: dict[str, Any] = json.loads((LEGAL.parent / "examples" / "privacy-report.json").read_text())
SCHEMA = json.loads(Path(__file__).with_name("deployments_registry_schema.json").read_text())
VIEWS = {
    "owner": owner_view(report()),
    "releasable": releasable_view(report()),
    "classifier": releasable_view(report().model_copy(update={"result": "classifier"})),
    "example": EXAMPLE,
}


@pytest.fixture(params=VIEWS)
def view(request: pytest.FixtureRequest) -> dict[str, Any]:
    return VIEWS[request.param]


def plain(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)).split())


def test_every_field_has_an_answer_and_every_question_a_known_field() -> None:
    assert ANSWERS.keys() == REQUIRED_FIELDS.keys()
    asked = {field for framework in FRAMEWORKS for one in framework.questions for field in one.fields}
    assert asked <= ANSWERS.keys()
    # Without a field, it is the reader who answers.
    assert all(one.fields or one.adds for framework in FRAMEWORKS for one in framework.questions)


def test_every_answer_is_a_sentence_about_this_job(view: dict[str, Any]) -> None:
    for field, answer in ANSWERS.items():
        text = answer(view)
        assert text.strip().endswith((".", "”", ")")) or field == "F21", (field, text)
        assert not re.search(r"\bNone\b|\{|\}|True|False", text), (field, text)


def test_the_page_has_every_question_and_leads_to_what_the_report_says(view: dict[str, Any]) -> None:
    page = evidence_page(view)
    shown = plain(page)
    for framework in FRAMEWORKS:
        for one in framework.questions:
            assert one.asks in shown
            for field in one.fields:
                assert f'href="#{field}"' in page
                assert f'<tr id="{field}">' in page
                assert " ".join(ANSWERS[field](view).split()) in shown


def test_the_copy_to_pass_on_has_nothing_of_the_account() -> None:
    owner, releasable = plain(evidence_page(VIEWS["owner"])), plain(evidence_page(VIEWS["releasable"]))
    assert "Of a lifetime budget of ε =" in owner
    assert "Of a lifetime budget of ε =" not in releasable
    assert "Owner’s copy" in owner
    assert "Nothing in it is private" in releasable


def test_no_verdict_is_given(view: dict[str, Any]) -> None:
    shown = plain(evidence_page(view)).casefold()
    assert "nothing here decides whether a release is anonymous or lawful" in shown
    for claim in ("is anonymous.", "complies", "is compliant", "satisfies", "is hipaa", "fulfils"):
        assert claim not in shown, claim


def test_names_of_classes_cannot_break_out_of_the_page() -> None:
    changed = json.loads(json.dumps(EXAMPLE))
    changed["contact"] = "<script>alert(1)</script>"
    assert "<script>" not in evidence_page(changed)


def test_the_page_for_lawyers_has_the_same_rows() -> None:
    written = LEGAL.read_text()
    for framework in FRAMEWORKS:
        assert f"### {framework.name}\n" in written
        for one in framework.questions:
            row = f"| {one.place} | {one.asks} | {', '.join(one.fields) or 'none'} | {one.adds} |"
            assert row in written, row


def test_the_entry_is_valid_in_the_registry(view: dict[str, Any]) -> None:
    entry = yaml.safe_load(registry_entry(view))
    jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker()).validate(entry)
    assert entry["tier"] == 3
    assert entry["status"] == "Draft"


def test_the_entry_has_every_field_of_tier_3_that_has_a_word_for_unknown() -> None:
    entry = yaml.safe_load(registry_entry(EXAMPLE))
    missing = set(_missing(SCHEMA["properties"]["deployment"], entry["deployment"], ""))
    assert missing == {
        ".basic.data_product_sector",
        ".deployment_model.data_source_type_details",
        ".privacy_loss.privacy_parameters.rho",
    }


def _missing(schema: dict[str, Any], given: Any, path: str) -> list[str]:
    found = []
    for name, part in schema.get("properties", {}).items():
        if name not in given:
            found.append(f"{path}.{name}")
        else:
            found += _missing(part, given[name], f"{path}.{name}")
    return found


def test_what_the_service_cannot_know_is_said_to_be_unknown() -> None:
    entry = yaml.safe_load(registry_entry(EXAMPLE))["deployment"]
    unknown = (
        entry["basic"]["data_curators"][0],
        entry["basic"]["intended_use"],
        entry["basic"]["data_product_region"],
    )
    assert {*unknown, *entry["administrative"]["registry_authors"]} == {UNKNOWN}


def test_figures_are_those_of_the_report() -> None:
    entry = yaml.safe_load(registry_entry(EXAMPLE))["deployment"]
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-5}
    assert entry["basic"]["data_product_type"] == "Synthetic data"
    model = yaml.safe_load(registry_entry(VIEWS["classifier"]))["deployment"]["basic"]
    assert model["data_product_type"] == "Machine learning model"
