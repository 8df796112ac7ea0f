"""What leaves is made of fields that were declared public; a field that somebody adds is the owner's until then."""

import ast
import dataclasses
import io
import json
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import structlog
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from datalens_service.base import audience, logs
from datalens_service.base.audience import NotPublicError, Private, Public, public_fields, public_part
from datalens_service.base.clock import utc_now
from datalens_service.data.dataset import Split
from datalens_service.data.export.model_card import model_card
from datalens_service.data.export.pages import DrawnImages, datasheet
from datalens_service.evaluation import Measure
from datalens_service.evaluation.measures import ClassFigure
from datalens_service.evaluation.metrics.outcome import Basis
from datalens_service.report.build import Report, owner_view, releasable_view
from datalens_service.report.card import Card, card
from datalens_service.report.document import ReportDocument
from datalens_service.services.overview import Overview, Waiting
from datalens_service.store.access.usage import Usage
from datalens_service.store.access.webhooks import JobNews, _message
from datalens_service.store.jobs.events import Event
from datalens_service.store.schema.service_tables import WebhookRow
from report_pages import releasable_html
from repository import ROOT
from tests.evaluation.conftest import report

LEAK = "41 images of class b"
BASIS = Basis(
    extractor="x", weights_sha256="0", library="l", synthetic_images=9, reference="r", reference_kind="public",
    reference_images=9,
)  # fmt: skip


ROOMS = ("datalens_service.evaluation", "datalens_service.report")


def reachable(model: type[BaseModel], found: dict[str, type[BaseModel]]) -> dict[str, type[BaseModel]]:
    """Models of evaluation and report that a model is made of, by name, with those that declare public fields alone."""
    if model.__module__.startswith(ROOMS) and model.__name__ not in found:
        found[model.__name__] = model
        for field in model.model_fields.values():
            # What is public as a whole is so by its type.
            for kind in () if audience._WHOLE in field.metadata else kinds_in(field.annotation):
                reachable(kind, found)
    return found


def kinds_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from kinds_in(inner)


MODELS = reachable(Card, reachable(ReportDocument, reachable(Report, {})))


def said() -> str:
    """A secret wherever a model is made, but for the default that the public part of one has instead."""
    frames = (frame.f_code.co_name for frame, _ in traceback.walk_stack(None))
    return "" if "model_construct" in frames else LEAK


@pytest.fixture
def undeclared() -> Iterator[None]:
    """One more field in every model of reports and cards."""
    kept = {name: dict(model.model_fields) for name, model in MODELS.items()}
    for model in MODELS.values():
        model.__pydantic_fields__["undeclared"] = FieldInfo(annotation=str, default_factory=said)
    rebuild()
    yield
    for name, model in MODELS.items():
        model.__pydantic_fields__ = kept[name]
    rebuild()


def rebuild() -> None:
    """A model holds the schemas of its parts, and those hold theirs."""
    for model in (*reversed(MODELS.values()),) * 2:
        model.model_rebuild(force=True)


def finished() -> Report:
    """With figures for anybody and figures for the owner."""
    shown = Measure(
        name="fid_domain", value=1.5, unit="distance", audience="public", status="covered", protocol="p", basis=BASIS
    )
    own = Measure(name="accuracy", value=94.5, unit="percent", audience="owner", status="private", protocol="p")
    line = ClassFigure(classifier="c", class_name="x", test_images=3, accuracy=None, ceiling=None, taken_for=None)
    return report(shown, own, per_class=(line,))


RELEASED: dict[str, Callable[[Report], str]] = {
    "report": lambda made: json.dumps(releasable_view(made)),
    "page": releasable_html,
    "card": lambda made: json.dumps(card(made)),
    "card in proofs": lambda made: Card.from_report(made).model_dump_json(),
    "datasheet": lambda made: datasheet(card(made), DrawnImages(10), name="n", spdx="CC0-1.0"),
    "README": lambda made: model_card(card(made), "classifier", ["a.onnx"]),
}


@pytest.mark.usefixtures("undeclared")
def test_a_field_that_nobody_declared_is_in_nothing_that_is_released() -> None:
    made = finished()
    assert json.dumps(owner_view(made)).count(LEAK) > len(MODELS)
    assert [name for name, write in RELEASED.items() if LEAK in write(made)] == []


def more_of(value: Any) -> Any:
    """The same with a field that was not declared."""
    fields = [("undeclared", str, dataclasses.field(default=""))]
    kind: Any = dataclasses.make_dataclass("More", fields, bases=(type(value),), frozen=True)
    return kind(**vars(value), undeclared=LEAK)


TOLD = [
    Event(1, "job.started", "running", None, 0, 1, 0, utc_now()),
    JobNews("job_1", "ds_1", "succeeded"),
    Usage(1, {}, 0, 0, 1, 0, 0.0),
    Overview({}, (Waiting("", 1, 2.0),), {}, 0, 0.0, 1, 0, {}),
    Waiting("", 1, 2.0),
]


@pytest.mark.parametrize("value", TOLD, ids=lambda value: type(value).__name__)
def test_what_is_told_of_jobs_and_of_the_service_has_declared_fields_alone(value: Any) -> None:
    assert public_part(value) == value
    assert public_part(more_of(value)).undeclared == ""
    assert LEAK not in str(public_fields(more_of(value)))


def test_a_message_has_declared_fields_alone() -> None:
    hook = WebhookRow(id="wh_1", tenant_id="default", url="", secret="", events="", enabled=True, created_at=utc_now())
    sent = _message(hook, "job.succeeded", more_of(JobNews("job_1", "ds_1", "succeeded")), utc_now())
    assert json.loads(sent.payload)["data"] == {"job_id": "job_1", "dataset_id": "ds_1", "state": "succeeded"}


def test_a_line_of_the_log_has_declared_fields_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    try:
        logs.configure("info")
        structlog.get_logger().info("job ended", state="succeeded", accuracy=94.5)
    finally:
        structlog.reset_defaults()
    assert {"event", "level", "timestamp", "state"} == set(json.loads(printed.getvalue()))


def logged_fields() -> Iterator[tuple[str, str]]:
    """Every field that the program names in a call that logs, with its place."""
    for room in ("api", "workers", "datalens_service"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("log.", "_log.")):
                    yield from ((str(word.arg), f"{path}:{node.lineno}") for word in node.keywords if word.arg)


def test_no_field_that_the_program_logs_is_left_out() -> None:
    assert [place for name, place in logged_fields() if name not in logs.PUBLIC_FIELDS] == []


class _Part(BaseModel):
    shown: Public[int] = 1


class _Whole(BaseModel):
    part: Public[_Part]
    needed: str


@pytest.mark.parametrize("value", [_Whole(part=_Part(), needed=LEAK), object(), Private(LEAK), [Private(LEAK)]])
def test_what_cannot_be_left_out_is_refused(value: object) -> None:
    with pytest.raises(NotPublicError):
        public_part(value)


class _Holder(BaseModel):
    figure: Private[float]


WAYS_OUT: dict[str, Callable[[Private[float]], object]] = {
    "repr": repr,
    "str": str,
    "format": lambda figure: f"{figure:.2f}",
    "json": json.dumps,
    "pickle": pickle.dumps,
    "model": lambda figure: _Holder(figure=figure).model_dump(),
    "repr of a model": lambda figure: repr(_Holder(figure=figure)),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_private_figure_is_shown_by_nothing(way: str) -> None:
    with pytest.raises(Exception, match=r"(?i)shown to nobody|not JSON serializable") as error:
        WAYS_OUT[way](Private(94.5))
    assert "94" not in str(error.value)


def readers() -> set[str]:
    """Functions that read private figures."""
    found = set()
    for room in ("api", "workers", "datalens_service"):
        for path in (ROOT / room).rglob("*.py"):
            tree = ast.parse(path.read_text())
            for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
                if any(isinstance(node, ast.Attribute) and node.attr == "for_owner" for node in ast.walk(function)):
                    found.add(f"{path.stem}.{function.name}")
    return found


def test_the_owners_view_alone_reads_private_figures() -> None:
    assert readers() == {
        *("build.owner_view", "evaluate.with_caveats", "evaluate.with_outcome"),
        # Of how many images a figure is: in its name, and in what is said of persons.
        *("accuracy._real", "assembly._check_count", "reference.test_reference", "reference.fidelity_reference"),
        *("reference._caveats_of_test", "reference._caveats_of_holdout"),
        # Of what an upload was found to hold: before it is a data set, and in the answer to its owner.
        *("ingestion._reviewed", "upload_reports.from_decoded", "upload_reports.of_upload", "datasets.from_upload"),
    }


def test_the_number_of_records_is_a_figure_for_the_owner() -> None:
    split = Split(np.zeros((3, 4, 4, 1), dtype=np.uint8), np.zeros(3, dtype=np.int64))
    assert split.count.for_owner() == 3
    with pytest.raises(TypeError, match="len"):
        len(split)  # type: ignore[arg-type]
    for write in (str, repr, "{}".format):
        with pytest.raises(NotPublicError):
            write(split.count)
    assert "3" not in repr(split)


_COUNTED = re.compile(r"len\([\w.]*\.(labels|images|unit_ids|units)\)|\.(labels|images|unit_ids)\.(size|shape)")


def counts_in_texts(source: str) -> list[str]:
    """Numbers of records that go into a text, as an array of records counts them."""
    parts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FormattedValue)]
    return [text for text in map(ast.unparse, parts) if _COUNTED.search(text)]


def test_no_text_counts_the_records_of_a_split() -> None:
    found = {
        f"{path.stem}: {text}"
        for room in ("api", "workers", "datalens_service")
        for path in (ROOT / room).rglob("*.py")
        for text in counts_in_texts(path.read_text())
    }
    assert found == set()


@pytest.mark.parametrize("text", ["{len(dataset.train.labels):,}", "{split.images.shape[0]}", "{train.labels.size}"])
def test_a_text_that_counts_records_is_seen(text: str) -> None:
    assert counts_in_texts(f"x = f'of {text} images'")
