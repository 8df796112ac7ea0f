"""The published shape of a report: complete, closed, sealed, and refused without any of its members."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from datalens_service.base.errors import ReportIncomplete
from datalens_service.evaluation import ClassFigure, Measure, Unavailable
from datalens_service.evaluation.measures import Basis
from datalens_service.report.build import REQUIRED_FIELDS, JournalFacts, Report, owner_view, releasable_view
from datalens_service.report.document import check, compute_seal, json_schema
from report_pages import releasable_html
from tests.evaluation.conftest import report

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
# Their members belong to the methods and mechanisms, not to the report.
FREE = {("method", "spec"), ("privacy", "mechanisms"), ("method", "plan")}
BASIS = Basis(
    extractor="datalens-domain",
    weights_sha256="0" * 64,
    library="torch-fidelity 0.4.0",
    synthetic_images=100,
    reference="the 200 public test images",
    reference_kind="public",
    reference_images=100,
)


def full() -> Report:
    """A report with something in every list."""
    shown = {"audience": "public", "status": "covered", "protocol": "p"}
    journal = JournalFacts.model_validate(
        {"opened_on": "2026-01-02", "opening_entry": "a" * 64, "entries": 7, "head": "b" * 64, "linked_datasets": []}
    )
    line = ClassFigure(
        classifier="standard CNN", class_name="x", test_images=3, accuracy=None, ceiling=None, taken_for=None
    )
    given = report(
        Measure(name="fid_domain", value=1.5, unit="distance", floor=3.0, ceiling=0.1, basis=BASIS, **shown),
        Measure(name="accuracy", value=94.5, unit="percent", audience="owner", status="private", protocol="p"),
        per_class=(line,),
        unavailable=(Unavailable(figure="Fidelity", reason="No weights."),),
        person_caveats=("Three images were left out.",),
    )
    return given.model_copy(update={"journal": journal})


OWNER, SHARED = owner_view(full()), releasable_view(full())


def resealed(content: dict[str, Any]) -> bytes:
    """With the seal made anew, as a program would that left something out."""
    if "sha256" in content.get("seal", {}):
        content = {**content, "seal": {**content["seal"], "sha256": compute_seal(content)}}
    return json.dumps(content).encode()


OPTIONAL = {"attacks", "anonymity", "confusion", "individual_epsilon", "person_caveats", "public_images"}
OPTIONAL_WITHIN = {
    "ReportDocument": OPTIONAL,
    "Guarantee": {"slack"},
    "MethodSection": {"plugin"},
    "Schema": {"records_are_public", "public_license", "groups_ignored", "preparation"},
    "MeasureSection": {"balanced", "balanced_spread", "confidence_interval"},
}
"""Of some results, or not of reports of earlier versions."""


def members(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all members of all objects, of the first element of every list."""
    if path in FREE:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from members(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from members(value[0], (*path, 0))


def without(content: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    changed = copy.deepcopy(content)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return changed


@pytest.mark.parametrize("view", [OWNER, SHARED, owner_view(report()), releasable_view(report())])
def test_both_views_have_the_published_shape(view):
    check(json.dumps(view).encode())
    VALIDATOR.validate(json.loads(json.dumps(view)))


def test_the_schema_itself_is_valid_and_closed():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for name, model in {**SCHEMA["$defs"], "ReportDocument": SCHEMA}.items():
        if model.get("type") == "object":
            optional = OPTIONAL_WITHIN.get(name, set())
            assert set(model["required"]) == set(model["properties"]) - optional, name
            assert model.get("additionalProperties") is (name == "MechanismSection"), name


def test_a_report_without_any_one_member_is_refused_by_schema_and_program():
    paths = [path for path in members(OWNER) if len(path) > 1 or path[0] not in OPTIONAL]
    assert len(paths) > 150
    for path in paths:
        broken = without(OWNER, path)
        assert not VALIDATOR.is_valid(broken), path
        with pytest.raises(ReportIncomplete):
            check(resealed(broken))


@pytest.mark.parametrize("field", REQUIRED_FIELDS)
def test_every_required_field_is_there_and_is_missed(field):
    assert REQUIRED_FIELDS[field].paths
    for dotted in REQUIRED_FIELDS[field].paths:
        path = tuple(dotted.split("."))
        for view in (OWNER, SHARED):
            assert not VALIDATOR.is_valid(without(view, path)), dotted
            with pytest.raises(ReportIncomplete):
                check(resealed(without(view, path)))


def test_all_26_fields_are_indexed():
    assert list(REQUIRED_FIELDS) == [f"F{number}" for number in range(1, 27)]
    assert [entry["field"] for entry in SHARED["index"]] == list(REQUIRED_FIELDS)


@pytest.mark.parametrize("added", [(), ("privacy",), ("dataset", "fingerprint")])
def test_members_that_nobody_knows_are_refused(added):
    content = copy.deepcopy(SHARED)
    inner = content
    for key in added:
        inner = inner[key]
    inner["remark"] = "hello"
    assert not VALIDATOR.is_valid(content)
    with pytest.raises(ReportIncomplete):
        check(resealed(content))


def test_a_changed_number_breaks_the_seal():
    content = copy.deepcopy(SHARED)
    content["privacy"]["headline"]["points"][0]["epsilon"] = 0.1
    with pytest.raises(ReportIncomplete, match="sealed"):
        check(json.dumps(content).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"null", b'{"format": "datalens-report/2"}'])
def test_what_is_no_report_is_refused(content):
    with pytest.raises(ReportIncomplete):
        check(content)


@pytest.mark.parametrize("member", ["measures", "per_class", "unavailable", "person_caveats"])
def test_a_releasable_report_with_the_owners_figures_is_refused(member):
    content = {**copy.deepcopy(SHARED), member: OWNER[member]}
    with pytest.raises(ReportIncomplete, match="for the owner"):
        check(resealed(content))


def summarize_row(linked: bool) -> Report:
    """The report of a job whose account another upload shares, or of one whose account is its own."""
    lifetime = full().privacy.lifetime.model_copy(update={"linked": linked, "spent": 1.9 if linked else 1.4652})
    journal = JournalFacts.model_validate(
        {
            "opened_on": "2025-07-08" if linked else "2026-01-02",
            "opening_entry": ("d" if linked else "a") * 64,
            "entries": 12 if linked else 7,
            "head": ("e" if linked else "b") * 64,
            "linked_datasets": ["ds_other"] if linked else [],
        }
    )
    privacy = full().privacy.model_copy(update={"lifetime": lifetime})
    return full().model_copy(update={"privacy": privacy, "journal": journal})


def test_a_report_to_pass_on_is_the_same_whoever_shares_the_account():
    linked, alone = summarize_row(linked=True), summarize_row(linked=False)
    assert owner_view(linked) != owner_view(alone)
    assert owner_view(linked)["privacy"]["linked_datasets"] == ["ds_other"]
    assert releasable_view(linked) == releasable_view(alone)
    assert releasable_html(linked) == releasable_html(alone)
    check(json.dumps(releasable_view(linked)).encode())


def test_a_report_to_pass_on_says_where_the_lifetime_is():
    privacy = SHARED["privacy"]
    assert privacy["lifetime"] is None
    assert "owner" in privacy["lifetime_note"]
    assert "μ²" in privacy["lifetime_note"]


@pytest.mark.parametrize(
    "path",
    [
        ("privacy", "lifetime"),
        ("privacy", "linked_datasets"),
        ("privacy", "policy"),
        ("dataset", "fingerprint"),
        ("seal", "account_entries"),
        ("seal", "account_head"),
    ],
)
def test_a_report_to_pass_on_that_tells_of_the_account_is_refused(path):
    section, member = path
    content = copy.deepcopy(SHARED)
    content[section][member] = OWNER[section][member]
    with pytest.raises(ReportIncomplete, match="account"):
        check(resealed(content))


def test_the_spend_ends_with_what_was_charged_and_the_curve_holds():
    privacy = SHARED["privacy"]
    spend, headline = privacy["spend"], privacy["headline"]
    assert [point["releases"] for point in spend] == sorted({point["releases"] for point in spend})
    assert spend[0]["epsilon"] == 0
    assert (spend[-1]["units"], spend[-1]["epsilon"]) == (headline["units"], headline["points"][0]["epsilon"])
    assert len(spend) < 150
    epsilons = [point["epsilon"] for point in headline["curve"]]
    assert epsilons == sorted(epsilons)
    assert all(
        replaced["epsilon"] >= own["epsilon"]
        for own, replaced in zip(headline["curve"], privacy["replace_one"]["curve"], strict=True)
    )
