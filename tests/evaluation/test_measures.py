"""A private measure cannot be made public, in whatever way it is built."""

import itertools
import subprocess
import sys
from typing import get_args

import pytest
from pydantic import ValidationError

from datalens_service.base.audience import FigureAudience
from datalens_service.data.dataset import Schema
from datalens_service.evaluation import METRICS, EvaluationSettings, Measure
from datalens_service.evaluation.measures import STATUS_LABELS
from datalens_service.evaluation.metrics.outcome import Status

GIVEN = {"name": "accuracy", "value": 94.5, "unit": "percent", "protocol": "standard CNN"}


def test_private_and_public_exclude_each_other():
    with pytest.raises(ValidationError, match="owner only"):
        Measure(**GIVEN, audience="public", status="private")
    with pytest.raises(ValidationError, match="owner only"):
        Measure.model_validate(GIVEN | {"audience": "public", "status": "private"})


@pytest.mark.parametrize(("audience", "status"), list(itertools.product(get_args(FigureAudience), get_args(Status))))
def test_releasable_means_public_and_not_private(audience, status):
    # model_construct skips the validator, as a careless caller might.
    measure = Measure.model_construct(**GIVEN, audience=audience, status=status)
    assert measure.releasable == (audience == "public" and status in ("covered", "public"))


@pytest.mark.parametrize(
    "change",
    [{"name": "fid"}, {"value": float("nan")}, {"spread": -1.0}, {"seeds": 0}, {"protocol": ""}, {"best_epoch": 3}],
)
def test_nonsense_is_refused(change):
    with pytest.raises(ValidationError):
        Measure(**(GIVEN | {"audience": "owner", "status": "private"} | change))


def test_measures_are_frozen():
    measure = Measure(**GIVEN, audience="owner", status="private")
    with pytest.raises(ValidationError):
        measure.audience = "public"


def test_every_status_has_a_label_and_every_metric_is_explained():
    assert set(STATUS_LABELS) == set(get_args(Status))
    assert all(metric.title and metric.meaning.endswith(".") for metric in METRICS.values())


def test_evaluations_are_repeated_three_times_and_those_of_large_images_are_bounded_in_memory():
    schema = Schema(channels=3, height=128, width=128, class_names=("a",), num_units=2)
    bounded = EvaluationSettings().bounded_for(schema)
    assert bounded.synthetic_images * schema.dimensions <= 2**26
    assert bounded.steps == EvaluationSettings().steps
    assert (bounded.repetitions, EvaluationSettings(seeds=1).repetitions) == (3, 1)


def test_settings_refuse_unknown_fields_and_empty_work():
    assert EvaluationSettings() == EvaluationSettings(synthetic_images=30_000, epochs=200, batch_size=64, seeds=None)
    for wrong in ({"best_epoch": True}, {"epochs": 0}, {"seeds": 0}, {"synthetic_images": 0}):
        with pytest.raises(ValidationError):
            EvaluationSettings(**wrong)


def test_registry_settings_and_report_start_without_torch():
    names = ("evaluation", "evaluation.settings", "report.build", "report.html", "report.card")
    modules = [f"datalens_service.{name}" for name in names]
    code = f"import sys, {', '.join(modules)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
