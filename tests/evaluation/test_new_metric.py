"""A metric is one module: what it reads decides who may see it, and nothing else has to be said anywhere."""

import dataclasses
import json
from pathlib import Path
from typing import get_args

import pytest

from datalens_service.data.dataset import Dataset
from datalens_service.evaluation import METRICS, EvaluationSettings, Measure
from datalens_service.evaluation.evaluate import EvaluatedModel, evaluate
from datalens_service.evaluation.measures import Measurements
from datalens_service.evaluation.metrics.classifier_benchmark import StepCounter
from datalens_service.evaluation.metrics.context import Context, Sources, UndeclaredRead
from datalens_service.evaluation.metrics.fidelity import EXTRACTOR_TITLES
from datalens_service.evaluation.metrics.outcome import Reads
from datalens_service.evaluation.settings import ExtractorKind
from datalens_service.models.generators.generator import Generator
from datalens_service.report.build import Report, owner_view, releasable_view
from report_pages import owner_html, releasable_html
from tests.evaluation.conftest import report
from tests.extensions.drop_in import drop_in

SOURCE = '''
"""How bright images are: of the generator, or of private records."""

from datalens_service.evaluation.metrics.metric import Metric
from datalens_service.evaluation.metrics.outcome import MetricResult


def _brightness(context):
    images = {look}
    return MetricResult((float(images.mean()) / 2.55,), "mean of all pixels")


METRIC = Metric(
    name="brightness",
    title="Brightness of images",
    meaning="Share of the brightest value that pixels have on average.",
    unit="percent",
    better="higher",
    reads="{reads}",
    compute=_brightness,
)
'''
LOOKS = {
    "released": "context.generator.sample(50)[0]",
    "test": "context.test_images.split.images",
    "reference": "context.reference.split.images",
    "training": "context.training_images.images",
}
ONLY_IT = EvaluationSettings(synthetic_images=1, epochs=1, floors=False, ceiling=False, fidelity=("domain",))


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Adds the file, and its line in the registry; the metrics that take long are left out."""

    def added(reads: str, look: str) -> None:
        source = SOURCE.format(reads=reads, look=LOOKS[look])
        metric = drop_in(monkeypatch, tmp_path, "datalens_service.evaluation.metrics", source).METRIC
        for name in METRICS:
            monkeypatch.setitem(METRICS, name, dataclasses.replace(METRICS[name], compute=None))
        monkeypatch.setitem(METRICS, metric.name, metric)

    return added


def evaluated(generator: Generator, dataset: Dataset) -> tuple[Measurements, list[tuple[str, int, int]]]:
    steps: list[tuple[str, int, int]] = []
    subject = EvaluatedModel(generator, dataset, epsilon=1.0, delta=1e-5, device="cpu", folder=Path("/nowhere"))
    return evaluate(subject, ONLY_IT, lambda *step: steps.append(step)).measured.for_owner(), steps


def with_public_test(dataset: Dataset) -> Dataset:
    return dataclasses.replace(dataset, schema=dataset.schema.model_copy(update={"test_is_public": True}))


def shown(evaluation: Measurements) -> tuple[bool, bool]:
    """Whether the owner's report has the metric, and whether the releasable one has."""
    made: Report = report(*evaluation.measures)
    pages = {"owner": owner_html(made), "releasable": releasable_html(made)}
    views = {"owner": owner_view(made), "releasable": releasable_view(made)}
    inside = {view: "Brightness of images" in json.dumps(content) for view, content in views.items()}
    assert inside == {view: "Brightness of images" in page for view, page in pages.items()}
    return inside["owner"], inside["releasable"]


@pytest.mark.parametrize(
    ("reads", "public_test", "releasable"),
    [
        ("released", False, True),
        ("test", False, False),
        ("test", True, True),
        ("reference", False, False),
        ("reference", True, True),
        ("training", False, False),
        ("training", True, False),
    ],
)
def test_one_file_makes_a_metric_and_what_it_reads_decides_who_sees_it(
    add, generator, dataset, reads, public_test, releasable
):
    add(reads, reads)
    evaluation, steps = evaluated(generator, with_public_test(dataset) if public_test else dataset)
    assert [measure.name for measure in evaluation.measures] == ["brightness"]
    assert shown(evaluation) == (True, releasable)
    assert steps == [(1, 1)]


@pytest.mark.parametrize("reads", LOOKS)
@pytest.mark.parametrize("look", LOOKS)
def test_a_metric_cannot_look_at_images_that_it_does_not_name(add, generator, dataset, reads, look):
    add(reads, look)
    evaluation, _ = evaluated(generator, dataset)
    permitted = look in ("released", reads) or reads == "training"
    assert [measure.name for measure in evaluation.measures] == (["brightness"] if permitted else [])
    assert [missing.figure for missing in evaluation.unavailable] == ([] if permitted else ["Brightness of images"])


def test_a_metric_without_its_images_is_left_out(add, generator, dataset):
    add("test", "test")
    evaluation, steps = evaluated(generator, dataclasses.replace(dataset, test=None))
    assert (evaluation, steps) == (Measurements(), [])


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.reads == "training"])
def test_a_figure_of_training_images_cannot_be_built_as_public(name):
    with pytest.raises(ValueError, match="owner only"):
        Measure(name=name, value=1.0, unit="percent", audience="public", status="covered", protocol="p")


def test_results_are_shared_among_metrics_with_one_audience_only(generator, dataset):
    subject = EvaluatedModel(generator, dataset, epsilon=1.0, delta=1e-5, device="cpu", folder=Path("/nowhere"))
    sources = Sources.from_job(subject, ONLY_IT)
    contexts = {reads: Context(sources, reads, StepCounter(lambda *_: None, 1)) for reads in get_args(Reads)}
    assert contexts["training"].once("mean", lambda: "private") == "private"
    assert contexts["test"].once("mean", lambda: "other") == "private"
    assert contexts["released"].once("mean", lambda: "released") == "released"
    with pytest.raises(UndeclaredRead):
        contexts["public"].generator  # noqa: B018


def test_settings_name_the_extractors_of_the_registry():
    assert get_args(ExtractorKind) == tuple(EXTRACTOR_TITLES)


def test_every_metric_has_the_name_that_it_is_registered_by():
    assert [metric.name for metric in METRICS.values()] == list(METRICS)
