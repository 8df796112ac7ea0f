"""The two views and the card: complete for the owner, and without a private figure for everybody else."""

import itertools
import json
import re

import pytest
from pydantic import ValidationError

from datalens_service.data.export.pages import DrawnImages, datasheet
from datalens_service.data.preparation_settings import Fit, PrepareSettings
from datalens_service.evaluation import METRICS, Measure
from datalens_service.evaluation.evaluate import Evaluation
from datalens_service.evaluation.measures import Measurements
from datalens_service.models.public_source import PublicInputs, PublicSource
from datalens_service.report import phrases as wording_module
from datalens_service.report.build import Report, owner_view, releasable_view
from datalens_service.report.card import card
from datalens_service.report.summary import usefulness
from report_pages import owner_html, releasable_html
from tests.evaluation.conftest import report, statement

ALLOWED = {("public", "covered"), ("public", "public")}
KINDS = [(audience, status) for audience in ("public", "owner") for status in ("covered", "public", "private")]


def measure(name: str, audience: str, status: str, value: float, text: str = "standard CNN") -> Measure:
    """Built without validation: a view has to hold even against a measure that should not exist."""
    given = {"name": name, "audience": audience, "status": status, "value": value, "unit": "percent"}
    return Measure.model_construct(**given, protocol=text, spread=value / 1000, seeds=3)


def unchecked(*measures: Measure) -> Report:
    """A report that would refuse such measures if it were asked."""
    evaluation = Evaluation.from_measurements(Measurements.model_construct(measures=measures))
    return report().model_copy(update={"measures": evaluation.measures, "measured": evaluation.measured})


def every_measure() -> dict[str, Measure]:
    """One measure for every metric, audience and status, with a value and a protocol found nowhere else."""
    found = {}
    for index, (name, (audience, status)) in enumerate(itertools.product(METRICS, KINDS)):
        secret = f"marker-{index:03d}-end"
        found[secret] = measure(name, audience, status, 41.3007 + index * 1.0101, secret)
    return found


def figures(value: Measure) -> list[str]:
    """The ways in which the figures of a measure could be written."""
    return [repr(value.value), f"{value.value:.2f}", f"{value.value:.1f}", repr(value.spread)]


def stands(figure: str, text: str) -> bool:
    """Whether a text has this number, not as a part of a longer one."""
    return re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", text) is not None


RELEASABLE = {
    "view": lambda subject: json.dumps(releasable_view(subject), ensure_ascii=False),
    "card": lambda subject: json.dumps(card(subject), ensure_ascii=False),
    "page": releasable_html,
}


@pytest.mark.parametrize("form", RELEASABLE)
def test_no_private_or_owner_measure_leaks(form):
    measures = every_measure()
    text = RELEASABLE[form](unchecked(*measures.values()))
    empty = RELEASABLE[form](report())
    allowed = {text for other in measures.values() if other.releasable for text in figures(other)}
    for secret, one in measures.items():
        if (one.audience, one.status) in ALLOWED and METRICS[one.name].reads != "training":
            assert secret in text
            continue
        assert secret not in text
        for figure in figures(one):
            assert not stands(figure, text) or figure in allowed or stands(figure, empty)


def test_a_report_refuses_a_private_measure_for_everybody():
    with pytest.raises(ValidationError, match="owner only"):
        report(measure("accuracy", "public", "private", 94.5))


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("form", RELEASABLE)
def test_private_measures_change_nothing_that_is_released(form, name):
    private = measure(name, "owner", "private", 94.5)
    assert RELEASABLE[form](report(private)) == RELEASABLE[form](report())


def test_the_owner_sees_everything():
    owners = ("owner", "private")
    measures = {
        text: one for text, one in every_measure().items() if one.releasable or (one.audience, one.status) == owners
    }
    subject = report(*measures.values())
    view, page = json.dumps(owner_view(subject), ensure_ascii=False), owner_html(subject)
    assert all(secret in view and secret in page for secret in measures)
    assert owner_view(subject)["view"] == "owner"
    assert "Do not pass them on" in page


def test_views_are_plain_json():
    subject = report(measure("accuracy", "owner", "private", 94.5))
    for view in (owner_view(subject), releasable_view(subject), card(subject)):
        assert json.loads(json.dumps(view, allow_nan=False)) == view


def test_a_view_recomputes_from_its_own_mechanisms():
    view = releasable_view(report())
    mechanisms = view["privacy"]["mechanisms"]
    for relation in ("zero_out", "replace_one"):
        total = sum(item["count"] * item[f"units_{relation}"] for item in mechanisms)
        side = view["privacy"]["headline" if relation == "zero_out" else "replace_one"]
        assert total == side["units"] == sum(item[f"units_{relation}_total"] for item in mechanisms)


def all_texts() -> list[str]:
    fixed = [value for name, value in vars(wording_module).items() if name.isupper() and isinstance(value, str)]
    view = owner_view(report(*(measure(name, "owner", "private", 90.0) for name in METRICS)))
    page = re.sub(r"<style>.*?</style>|<pre>.*?</pre>|<[^>]+>", " ", owner_html(report()), flags=re.DOTALL)
    return [*fixed, json.dumps(view, ensure_ascii=False), page]


def test_wording():
    for text in all_texts():
        # Asked and left to the reader; never claimed.
        asked = re.sub(r"Is it anonymous\?|You decide whether this is anonymous|\"anonymity\":", "", text)
        assert not re.search(r"anonym", asked, re.IGNORECASE)
        assert not re.search(r"\beps\b|\bepsilon ?=", text, re.IGNORECASE)
        for match in re.finditer(r"ε = [\d.]+(.{0,40})", text):
            assert "δ" in match.group(1), match.group()


def test_guarantee_is_said_of_the_budget_only():
    spoken = [*usefulness([measure(name, "owner", "private", 90.0) for name in METRICS])]
    spoken += [text for metric in METRICS.values() for text in (metric.title, metric.meaning)]
    assert not [text for text in spoken if "guarantee" in text.lower()]


def test_the_unit_is_called_what_the_owner_calls_it():
    text = json.dumps(statement().model_dump(mode="json"), ensure_ascii=False)
    assert "{unit}" not in text
    assert "one patient" in text


def test_the_summary_says_what_the_images_are_made_for() -> None:
    sentence = "Images are made to look like the private ones."
    silent = report()
    method = silent.method.model_copy(update={"rationale": sentence})
    for view in (owner_view, releasable_view):
        assert sentence not in view(silent)["summary"]
        assert sentence in view(silent.model_copy(update={"method": method}))["summary"]


def test_preparation_and_working_size_are_in_report_card_and_datasheet() -> None:
    silent, settings = report(), PrepareSettings(width=28, height=28, fit=Fit.CROP, window=(-5, 90))
    schema = silent.public_schema.model_copy(update={"preparation": settings})
    changes = {
        "public_schema": schema,
        "method": silent.method.model_copy(update={"working_size": "Images are reduced."}),
    }
    said = silent.model_copy(update=changes)
    for sentence in (settings.sentence(), "Images are reduced."):
        for view in (owner_view, releasable_view):
            assert sentence not in view(silent)["summary"]
            assert sentence in view(said)["summary"]
        assert sentence in datasheet(card(said), DrawnImages(10), name="x", spdx="CC0-1.0")
        assert sentence not in datasheet(card(silent), DrawnImages(10), name="x", spdx="CC0-1.0")
    assert "cropped in the centre to 28 by 28 pixels" in settings.sentence()
    assert "Values from -5 to 90 became 0 to 255." in settings.sentence()


def test_a_report_of_public_images_calls_nothing_synthetic():
    source = PublicSource(images=3, class_names=("thing",), sha256="0" * 64, verbatim=True)
    figures = [measure(name, "owner", "private", 60.0) for name in ("accuracy", "floor_averages", "ceiling")]
    made = report(*figures).model_copy(update={"public_inputs": PublicInputs(images=source), "result": "public images"})
    view = owner_view(made)
    assert (view["synthetic"], view["public_images"], card(made)["synthetic"]) == (False, True, False)
    texts = [view["summary"], view["usefulness"], [(one["title"], one["meaning"]) for one in view["measures"]]]
    assert view["measures"]
    assert "synthetic" not in json.dumps(texts)
    assert "Public images with labels learned from private ones" in owner_html(made)
