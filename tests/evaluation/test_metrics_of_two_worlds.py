"""Figures that anybody may see are the same whatever was trained on; a metric that is never tried so fails."""

import dataclasses
from pathlib import Path

from datalens_service.data.dataset import Dataset, Split
from datalens_service.evaluation import METRICS, EvaluationSettings
from datalens_service.evaluation.evaluate import EvaluatedModel, Evaluation, evaluate
from datalens_service.models.generators.generator import Generator

EVERYTHING = EvaluationSettings(
    synthetic_images=60, epochs=1, seeds=1, stronger_classifier=True, fidelity=("domain", "random"), fidelity_images=50
)
ELSEWHERE = {
    "accuracy_holdout": "tests/jobs/test_holdout.py",
    "classifier_accuracy": "tests/api/test_worlds_of_methods.py",
    "classifier_accuracy_holdout": "tests/jobs/test_holdout.py",
    **dict.fromkeys(
        (name for name, metric in METRICS.items() if metric.variant == "inception"), "tests/evaluation/test_evaluate.py"
    ),
    **dict.fromkeys((name for name in METRICS if name.endswith("_resnet")), "tests/evaluation/test_measures.py"),
}
"""Metrics that need more than images of a data set, by the test that has it: other accounts, models or weights."""


FEW = 100
"""Images of a split: an encoder takes its time for each."""


def few(split: Split) -> Split:
    return Split(split.images[:FEW], split.labels[:FEW])


def evaluated(generator: Generator, dataset: Dataset, folder: Path) -> Evaluation:
    subject = EvaluatedModel(
        generator, dataset, epsilon=1.0, delta=1e-5, device="cpu", folder=folder, moments_generator=generator
    )
    return evaluate(subject, EVERYTHING, lambda *_: None)


def test_what_others_see_of_every_metric_depends_on_no_training_image(
    generator: Generator, dataset: Dataset, tmp_path: Path
) -> None:
    assert dataset.test is not None
    schema = dataset.schema.model_copy(update={"test_is_public": True, "num_units": FEW})
    public = dataclasses.replace(dataset, schema=schema, train=few(dataset.train), test=few(dataset.test))
    bright = Split(255 - public.train.images, (public.train.labels + 1) % 3)
    found, other = (evaluated(generator, one, tmp_path) for one in (public, dataclasses.replace(public, train=bright)))
    everything, others = (one.measured.for_owner().measures for one in (found, other))
    assert {measure.name for measure in everything} == METRICS.keys() - ELSEWHERE, "a metric needs a case here"
    assert {measure.name for measure in found.measures} == {
        name for name, metric in METRICS.items() if metric.reads != "training"
    } - ELSEWHERE.keys()
    # Baselines and other real images of public fidelity are public, too.
    assert found.measures == other.measures
    assert everything != others
